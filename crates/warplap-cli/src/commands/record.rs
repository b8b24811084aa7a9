//! `warplap record`: every config of one variant is proved and timed on the device, and kept as a space to replay.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use clap::Args;
use serde_json::json;
use warplap::core::variant::Fit;
use warplap::report::recorded::{Recorded, Row};
use warplap::{Bucket, Mode, Settings};

use crate::console::Console;
use crate::failure::{Exit, Failure};
use crate::kept;
use crate::machine::{self, Machine};
use crate::progress::Progress;
use crate::race_args::Where;
use crate::suite;

/// Arguments of `record`.
#[derive(Args)]
pub(crate) struct Record {
    /// What to record: op:field=value,… or a spec file
    #[arg(value_name = "PROBLEM|SPEC")]
    problem: String,
    /// Where to keep it
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// The variant whose space is recorded (default: the one with the most configs)
    #[arg(long, value_name = "V")]
    variant: Option<String>,
    /// Samples of each config
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    samples: u32,
    #[command(flatten)]
    place: Where,
    /// The seed of the inputs
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

/// The most configs that are timed one by one.
const MOST: u128 = 1_000_000;

impl Record {
    pub(crate) fn run(&self, root: Option<&Path>, console: &Arc<Console>) -> Result<Exit, Failure> {
        let asked = suite::asked(&self.problem, None)?;
        let stop = machine::listen(console);
        let machine = Machine::open_to_read(root, asked.wanted(self.place.device)?)?;
        if let Some(spec) = asked.spec() {
            spec.ready_on(&machine.device).map_err(Failure::input)?;
        }
        let (mode, bucket, seed) = (Mode::Off, Bucket::Exact, self.seed);
        let policy = self.place.policy(&machine.device);
        let settings = Settings { mode, bucket, seed, policy, stop: stop.clone(), ..Settings::default() };
        let tuner = asked.open(&machine.device, machine.store.clone(), settings)?;
        let fits = tuner.variants(Some(&asked.problem))?.into_iter().filter(|s| matches!(s.fit, Some(Fit::Fits(_))));
        let variant = match &self.variant {
            Some(variant) => variant.clone(),
            None => fits.max_by_key(|s| s.configs).map(|s| s.id).unwrap_or_default(),
        };
        let space = tuner.space(&asked.problem, &variant)?;
        let count = space.count();
        if count == 0 || count > MOST {
            return Err(Failure::input(format!("{variant} has {count} configs here: expected 1 to {MOST}")));
        }
        let progress = Progress::new(console, 1);
        let _watch = progress.begin(0, &asked.problem);
        let configs = space.configs();
        let (next, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
        // Compilers run ahead of the one that proves and times, in the same order.
        let ahead = || {
            while let Some(config) = configs.get(next.fetch_add(1, Ordering::Relaxed)) {
                if stop.said() || ended.load(Ordering::Relaxed) {
                    break;
                }
                let _ = tuner.compile(&asked.problem, &variant, config);
            }
        };
        let rows = std::thread::scope(|scope| -> Result<Vec<Row>, Failure> {
            (0..tuner.builders()).for_each(|_| drop(scope.spawn(ahead)));
            let mut rows = Vec::new();
            for config in configs.iter().take_while(|_| !stop.said()) {
                let benched = tuner.bench(&asked.problem, &variant, Some(config), self.samples);
                ended.store(benched.is_err(), Ordering::Relaxed);
                let time_ms = benched?.map(|b| b.measurement.median_us * 1e-3).map_err(|r| r.word().to_string());
                rows.extend(space.point(config).map(|point| Row { point, time_ms }));
            }
            Ok(rows)
        })?;
        drop(progress);
        let mut recorded = Recorded::new(space.axes().to_vec(), rows).map_err(Failure::input)?;
        recorded.name = format!("{variant}__{}", asked.problem.replace([':', ',', '='], "_"));
        recorded.kernel = format!("{} {variant}", asked.problem);
        recorded.device = tuner.device_slug();
        recorded.source = format!("warplap {} record, median of {} samples", env!("CARGO_PKG_VERSION"), self.samples);
        kept::write(&self.output, recorded.to_text().as_bytes(), "--output")?;
        let (all, right) = (recorded.len(), recorded.times().count());
        if console.json {
            let file = self.output.display().to_string();
            console.line(&json!({
                "problem": asked.problem, "variant": variant, "file": file, "configs": all, "right": right,
            }))?;
        } else {
            console.say(format!("{}: {right} of {all} configs of {variant} are right", self.output.display()))?;
        }
        Ok(if stop.said() { Exit::Interrupted } else { Exit::Ok })
    }
}
