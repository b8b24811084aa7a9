//! `warplap regret`: what rounding sizes to a bucket costs one problem, measured.

use std::path::Path;
use std::sync::Arc;

use clap::Args;
use serde_json::json;
use warplap::{Bucket, Mode};

use crate::console::{Console, DIM, GOOD, HEAD, NAME, WARN, paint};
use crate::failure::{Exit, Failure};
use crate::machine::{self, Machine};
use crate::progress::Progress;
use crate::race_args::{self, RaceArgs};
use crate::suite;
use crate::units;

/// Arguments of `regret`.
#[derive(Args)]
pub(crate) struct Regret {
    /// The problem: op:field=value,…
    #[arg(value_name = "PROBLEM")]
    problem: String,
    /// The bucket whose cost is measured: pow2
    #[arg(long, value_name = "BUCKET", default_value = "pow2", value_parser = race_args::bucket)]
    bucket: Bucket,
    #[command(flatten)]
    race: RaceArgs,
}

impl Regret {
    pub(crate) fn run(&self, root: Option<&Path>, console: &Arc<Console>) -> Result<Exit, Failure> {
        let asked = suite::asked(&self.problem, None)?;
        let stop = machine::listen(console);
        let machine = Machine::open(root, asked.wanted(self.race.place.device)?)?;
        let settings = self.race.settings(&machine.device, Mode::Tune, self.bucket.clone(), &stop);
        let tuner = asked.open(&machine.device, machine.store, settings)?;
        let progress = Progress::new(console, 1);
        let regret = tuner.regret(&asked.problem, &progress.begin(0, &asked.problem))?;
        drop(progress);
        if console.json {
            let candidate = |c: &warplap::core::candidate::Candidate| json!({"variant": c.variant, "config": c.config});
            console.line(&json!({
                "problem": regret.problem,
                "bucket": regret.bucket,
                "representative": regret.representative,
                "bucket_winner": candidate(&regret.bucket_winner),
                "exact_winner": candidate(&regret.exact_winner),
                "bucket_us": regret.bucket_us,
                "exact_us": regret.exact_us,
                "ratio": regret.ratio,
                "tie": regret.tie,
            }))?;
        } else {
            let same = regret.bucket_winner == regret.exact_winner;
            let cost = 100.0 * (regret.ratio - 1.0);
            let verdict = match (same, regret.tie) {
                (true, _) => paint(GOOD, "the same winner: the bucket costs nothing"),
                (false, true) => paint(GOOD, format!("{cost:+.1} %: the two cannot be told apart")),
                (false, false) => paint(WARN, format!("{cost:+.1} %: that is what the bucket {} costs", regret.bucket)),
            };
            let fact = |name: &str, text: String| format!("  {} {text}\n", paint(DIM, format!("{name:<14}")));
            let who = |winner: &dyn std::fmt::Display, us: f64| format!("{}  {}", paint(NAME, winner), units::time(us));
            console.say(format!(
                "{}\n{}{}{}{}",
                paint(HEAD, &regret.problem),
                fact("raced instead", regret.representative.clone()),
                fact("bucket gives", who(&regret.bucket_winner, regret.bucket_us)),
                fact("exact gives", who(&regret.exact_winner, regret.exact_us)),
                fact("regret", verdict),
            ))?;
        }
        Ok(if stop.said() { Exit::Interrupted } else { Exit::Ok })
    }
}
