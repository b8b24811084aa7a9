//! `warplap bench`: one variant, or every variant at its default, proved right and timed alone; over a sweep of one
//! field where asked. Nothing is kept.

use std::path::Path;
use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};
use warplap::core::bench::Benched;
use warplap::core::rejection::Rejection;
use warplap::core::space::Config;
use warplap::core::variant::Fit;
use warplap::{Bucket, Mode, Settings};

use crate::console::{BAD, Console, DIM, NAME};
use crate::failure::{Exit, Failure};
use crate::machine::{self, Machine};
use crate::progress::Progress;
use crate::race_args::Where;
use crate::suite::{self, Asked};
use crate::sweep::Sweep;
use crate::table::{Cell, Table};
use crate::units;

/// Arguments of `bench`.
#[derive(Args)]
pub(crate) struct Bench {
    /// What to time: op:field=value,…
    #[arg(value_name = "PROBLEM")]
    problem: String,
    /// The variant (default: every variant that fits, at its default config)
    #[arg(long, value_name = "V")]
    variant: Option<String>,
    /// Its config; axes that are left out are at their defaults
    #[arg(long, value_name = "k=v,…", requires = "variant", value_parser = config)]
    config: Option<Config>,
    /// One field over a range: m=256..4096*2 or m=64..512+64
    #[arg(long, value_name = "RANGE", value_parser = Sweep::parse)]
    sweep: Option<Sweep>,
    /// Samples of each
    #[arg(long, value_name = "N", default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    samples: u32,
    #[command(flatten)]
    place: Where,
    /// The seed of the inputs
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Print comma-separated values
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

const CSV_HEAD: &str =
    "problem,variant,config,median_us,ci_low_us,ci_high_us,gflops,roofline_fraction,error,samples,batch,rejection";

fn config(text: &str) -> Result<Config, String> {
    Config::parse(text).map_err(|e| format!("{e}: expected axis=value,axis=value"))
}

impl Bench {
    pub(crate) fn run(&self, root: Option<&Path>, console: &Arc<Console>) -> Result<Exit, Failure> {
        let first = suite::asked(&self.problem, None)?;
        let texts = match &self.sweep {
            Some(sweep) => sweep.over(&self.problem),
            None => vec![first.problem.clone()],
        };
        let problems: Vec<Asked> = texts.iter().map(|text| suite::asked(text, None)).collect::<Result<_, _>>()?;
        let stop = machine::listen(console);
        let machine = Machine::open_to_read(root, first.wanted(self.place.device)?)?;
        if let Some(spec) = first.spec() {
            spec.ready_on(&machine.device).map_err(Failure::input)?;
        }
        let settings = Settings {
            mode: Mode::Off,
            bucket: Bucket::Exact,
            policy: self.place.policy(&machine.device),
            seed: self.seed,
            stop: stop.clone(),
            ..Settings::default()
        };
        let tuner = first.open(&machine.device, machine.store.clone(), settings)?;
        if self.csv {
            console.say(CSV_HEAD)?;
        }
        let mut table = Table::new(&["problem", "~variant", ">time", ">±", ">rate", ">roofline", ">error", ""]);
        let progress = Progress::new(console, problems.len());
        let mut right = 0;
        for (n, asked) in problems.iter().enumerate() {
            let _watch = progress.begin(n, &asked.problem);
            let variants: Vec<String> = match &self.variant {
                Some(variant) => vec![variant.clone()],
                None => {
                    let fits = |s: &warplap::any::VariantStatus| matches!(s.fit, Some(Fit::Fits(_)));
                    tuner.variants(Some(&asked.problem))?.into_iter().filter(fits).map(|s| s.id).collect()
                }
            };
            for variant in &variants {
                if stop.said() {
                    break;
                }
                let benched = tuner.bench(&asked.problem, variant, self.config.as_ref(), self.samples)?;
                right += usize::from(benched.is_ok());
                if console.json {
                    console.line(&line(&asked.problem, variant, &benched))?;
                } else if self.csv {
                    console.say(csv(&asked.problem, variant, self.config.as_ref(), &benched))?;
                } else {
                    row(&mut table, &asked.problem, variant, &benched);
                }
            }
        }
        drop(progress);
        if !console.json && !self.csv && !table.is_empty() {
            console.say(table.render(console.width()))?;
        }
        Ok(match (stop.said(), right) {
            (true, _) => Exit::Interrupted,
            (false, 0) => Exit::NoAnswer,
            (false, _) => Exit::Ok,
        })
    }
}

fn gflops(b: &Benched) -> f64 {
    b.work.flops / b.measurement.median_us * 1e-3
}

fn roofline(b: &Benched) -> Option<f64> {
    b.floor_us.map(|floor| floor / b.measurement.median_us)
}

fn line(problem: &str, variant: &str, benched: &Result<Benched, Rejection>) -> Value {
    match benched {
        Ok(b) => json!({
            "problem": problem,
            "variant": variant,
            "config": b.candidate.config,
            "median_us": b.measurement.median_us,
            "ci_us": b.measurement.ci_us,
            "gflops": gflops(b),
            "roofline_fraction": roofline(b),
            "error": b.error,
            "samples_us": b.measurement.samples_us,
            "batch": b.measurement.batch,
            "joules": b.joules,
        }),
        Err(rejection) => json!({
            "problem": problem, "variant": variant, "rejection": rejection.word(), "reason": rejection.to_string(),
        }),
    }
}

fn csv(problem: &str, variant: &str, asked: Option<&Config>, benched: &Result<Benched, Rejection>) -> String {
    let quoted = |text: String| format!("\"{}\"", text.replace('"', "\"\""));
    match benched {
        Ok(b) => {
            let (m, roofline) = (&b.measurement, roofline(b).map(|r| r.to_string()).unwrap_or_default());
            let config = quoted(b.candidate.config.to_string());
            let [low, high] = m.ci_us;
            let (problem, rate, samples) = (quoted(problem.into()), gflops(b), m.samples_us.len());
            let (median, error, batch) = (m.median_us, b.error, m.batch);
            format!("{problem},{variant},{config},{median},{low},{high},{rate},{roofline},{error},{samples},{batch},")
        }
        Err(rejection) => {
            let config = quoted(asked.map(ToString::to_string).unwrap_or_default());
            format!("{},{variant},{config},,,,,,,,,{}", quoted(problem.into()), quoted(rejection.to_string()))
        }
    }
}

fn row(table: &mut Table, problem: &str, variant: &str, benched: &Result<Benched, Rejection>) {
    let problem: Cell = problem.into();
    match benched {
        Ok(b) => table.row([
            problem,
            Cell::styled(&b.candidate, NAME),
            units::time(b.measurement.median_us).into(),
            Cell::styled(units::plus_minus(b.measurement.median_us, b.measurement.ci_us), DIM),
            units::rate(gflops(b) * 1e9).into(),
            units::percent(roofline(b)).into(),
            Cell::styled(format!("{:.2} of allowed", b.error), DIM),
            "".into(),
        ]),
        Err(rejection) => {
            let dash = || Cell::styled("—", DIM);
            let reason = Cell::styled(rejection, BAD);
            table.row([problem, Cell::styled(variant, NAME), dash(), dash(), dash(), dash(), dash(), reason]);
        }
    }
}
