//! `warplap replay`: a search runs on a recorded space, many times over; its best-so-far curve and its score go out.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use warplap::core::sanitize_text::brief;
use warplap::core::search::{Brief, DONORS};
use warplap::report::recorded::{Baseline, Recorded, Replayed, replay};

use crate::console::{Console, DIM, HEAD, paint};
use crate::failure::{Exit, Failure};
use crate::race_args::search_name;
use crate::table::Table;

/// Arguments of `replay`.
#[derive(Args)]
pub(crate) struct Replay {
    /// The recorded space: our own form, a Kernel Tuner cachefile or T4 results
    #[arg(long, value_name = "FILE")]
    space: PathBuf,
    /// The search
    #[arg(long, value_name = "NAME", default_value = warplap::core::search::NAMES[0], value_parser = search_name)]
    search: String,
    /// Trials of each repeat; failing configs count
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    budget: u32,
    /// How often, with seeds that follow each other
    #[arg(long, value_name = "R", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    repeats: u32,
    /// The first repeat's seed
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Start with this recorded space of another device at hand: its ten best first, the rest as a hint
    #[arg(long, value_name = "FILE")]
    donor: Option<PathBuf>,
    /// Of the donor only its ten best are known
    #[arg(long, requires = "donor")]
    ten: bool,
}

/// Trials whose standing the table shows.
const SHOWN: [usize; 6] = [10, 25, 50, 100, 200, 400];

impl Replay {
    pub(crate) fn run(&self, console: &Console) -> Result<Exit, Failure> {
        let recorded = read("--space", &self.space, console)?;
        let budget = self.budget as usize;
        let nothing = || Failure::input(format!("--space {}: every config failed", self.space.display()));
        let baseline = Baseline::new(&recorded, budget).ok_or_else(nothing)?;
        let donor = self.donor.as_ref().map(|path| read("--donor", path, console)).transpose()?;
        if let Some(why) = donor.as_ref().and_then(|donor| strange(&recorded, donor)) {
            console.warn(format_args!("--donor {why}"));
        }
        let priors: Vec<_> = donor.iter().flat_map(|d| d.best(DONORS)).map(Recorded::donor).collect();
        let all = donor.iter().filter(|_| !self.ten).flat_map(Recorded::right);
        let elsewhere: Vec<_> = all.map(|(config, time)| (Recorded::donor(config), time)).collect();
        let mut runs = Vec::new();
        for repeat in 0..u64::from(self.repeats) {
            let seed = self.seed.wrapping_add(repeat);
            let (priors, elsewhere) = (priors.clone(), elsewhere.clone());
            let brief = Brief { seed, priors, elsewhere, ..Brief::default() };
            let unknown = || Failure::input(format!("--search {}: there is none of that name", self.search));
            let run = replay(&recorded, &self.search, budget, &brief).ok_or_else(unknown)?;
            if console.json {
                console.line(&self.line(&recorded, &baseline, &run, repeat))?;
            }
            runs.push(run);
        }
        if !console.json {
            self.show(&recorded, &baseline, &runs, console)?;
        }
        Ok(Exit::Ok)
    }

    fn line(&self, recorded: &Recorded, baseline: &Baseline, run: &Replayed, repeat: u64) -> Value {
        let best = run.curve.best_at(run.trials);
        json!({
            "space": recorded.name,
            "search": self.search,
            "repeat": repeat,
            "seed": self.seed.wrapping_add(repeat),
            "budget": self.budget,
            "trials": run.trials,
            "failures": run.failures,
            "improvements": run.curve.improvements,
            "best_ms": best,
            "optimum_ms": baseline.optimum_ms,
            "best_over_optimum": best.map(|b| b / baseline.optimum_ms),
            "score": baseline.score(&run.curve),
            "own_us_per_trial": run.own_seconds * 1e6 / run.trials.max(1) as f64,
        })
    }

    fn show(
        &self,
        recorded: &Recorded,
        baseline: &Baseline,
        runs: &[Replayed],
        console: &Console,
    ) -> Result<(), Failure> {
        let ok = recorded.times().count();
        console.say(format!(
            "{}  {} configs, {} right, optimum {:.4} ms",
            paint(HEAD, &recorded.name),
            recorded.len(),
            ok,
            baseline.optimum_ms
        ))?;
        let mut table = Table::new(&[">trials", ">best/optimum", ">worst run", ">within 5 %", ">random", "~curve"]);
        let most = baseline.random_ms.len();
        for at in SHOWN.into_iter().filter(|k| *k < most).chain([most]) {
            let ratio = |r: &Replayed| r.curve.best_at(at).unwrap_or(baseline.slowest_ms) / baseline.optimum_ms;
            let mut ratios: Vec<f64> = runs.iter().map(ratio).collect();
            ratios.sort_by(f64::total_cmp);
            let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
            let within = ratios.iter().filter(|r| **r <= 1.05).count() as f64 / ratios.len() as f64;
            // A bar as long as the distance to the optimum, doubling by doubling.
            let bar = "█".repeat(((mean - 1.0).max(0.0).ln_1p() * 24.0).round().min(60.0) as usize);
            table.row([
                at.to_string().into(),
                format!("{mean:.3}").into(),
                format!("{:.3}", ratios.last().copied().unwrap_or(f64::NAN)).into(),
                format!("{:.0} %", 100.0 * within).into(),
                format!("{:.3}", baseline.random_ms[at - 1] / baseline.optimum_ms).into(),
                format!("▏{bar}").into(),
            ]);
        }
        console.say(table.render(console.width()))?;
        let scores: Vec<f64> = runs.iter().map(|r| baseline.score(&r.curve)).collect();
        let mean = scores.iter().sum::<f64>() / scores.len() as f64;
        let spread = (scores.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / scores.len() as f64).sqrt();
        let own = runs.iter().map(|r| r.own_seconds * 1e6 / r.trials.max(1) as f64).sum::<f64>() / runs.len() as f64;
        console.say(format!(
            "score {}  {}",
            paint(HEAD, format!("{mean:+.3}")),
            paint(
                DIM,
                format!(
                    "± {spread:.3} between {} runs (0 random, 1 the optimum at once); {own:.0} us a trial of {}'s own",
                    runs.len(),
                    self.search
                )
            ),
        ))
    }
}

/// What makes a donor a stranger to a space: it has other parameters, or is of another kernel.
fn strange(recorded: &Recorded, donor: &Recorded) -> Option<String> {
    let names = |r: &Recorded| {
        let mut names: Vec<String> = r.space.axes().iter().map(|a| a.name().to_string()).collect();
        names.sort();
        names.join(", ")
    };
    let (wanted, result) = (names(recorded), names(donor));
    if wanted != result {
        let why = format!("has the parameters {}, the space has {}", brief(&result), brief(&wanted));
        return Some(format!("{} {why}: it is of another kernel and tells nothing here", donor.name));
    }
    let known = !recorded.kernel.is_empty() && !donor.kernel.is_empty();
    (known && recorded.kernel != donor.kernel).then(|| {
        let (theirs, ours) = (brief(&donor.kernel), brief(&recorded.kernel));
        format!("{} is of the kernel {theirs}, the space of {ours}: its configs are tried all the same", donor.name)
    })
}

/// Reads a recorded space; what is wrong names the option and the file.
fn read(option: &str, path: &Path, console: &Console) -> Result<Recorded, Failure> {
    let recorded = Recorded::read(path).map_err(|e| Failure::input(format!("{option} {}: {e}", path.display())))?;
    if recorded.torn {
        console.warn(format_args!("{} ends in the middle of a record: {} are whole", path.display(), recorded.len()));
    }
    Ok(recorded)
}
