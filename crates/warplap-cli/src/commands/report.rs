//! `warplap report`: what the store knows of a problem, or a recorded space, comes in; one page that needs no network
//! goes out. Nothing is measured.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use warplap::core::candidate::{Outcome, Trial};
use warplap::core::measure::Measurement;
use warplap::core::record::Edition;
use warplap::core::recorded::Recorded;
use warplap::core::rejection::Rejection;

use crate::console::Console;
use crate::failure::{Exit, Failure};
use crate::kept::{Kept, write};
use crate::race_args::Where;
use crate::units;

const PAGE: &str = include_str!("../../pages/report.html");

/// Where the page's facts stand in the template.
const SLOT: &str = "/*DATA*/";

/// Arguments of `report`.
#[derive(Args)]
pub(crate) struct Report {
    /// What to show: op:field=value,…, a spec file, or a recorded space (.json)
    #[arg(value_name = "PROBLEM|FILE")]
    what: String,
    /// The page
    #[arg(long, short, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
    #[command(flatten)]
    place: Where,
}

impl Report {
    pub(crate) fn run(&self, root: Option<&Path>, console: &Console) -> Result<Exit, Failure> {
        let facts = match recorded(&self.what)? {
            Some(recorded) => of_recorded(&self.what, &recorded),
            None => of_kept(&Kept::find(&self.what, &self.place, root)?),
        };
        write(&self.output, page(&facts).as_bytes())?;
        let trials = facts["trials"].as_array().map_or(0, Vec::len);
        if console.json {
            console.line(&json!({"report": self.output, "trials": trials}))?;
        } else {
            let many = units::some(trials, "trial", "trials");
            console.say(format_args!("{} shows {many} of {}", self.output.display(), self.what))?;
        }
        Ok(Exit::Ok)
    }
}

/// The page with its facts inside.
fn page(facts: &Value) -> String {
    // In a script element nothing but its end is markup, and no end can be written without this sign.
    PAGE.replacen(SLOT, &facts.to_string().replace('<', "\\u003c"), 1)
}

/// A recorded space, where the argument names one.
fn recorded(what: &str) -> Result<Option<Recorded>, Failure> {
    if !what.ends_with(".json") || !Path::new(what).is_file() {
        return Ok(None);
    }
    let text =
        std::fs::read_to_string(what).map_err(|e| Failure::input(format!("{what}: {e}: expected a text file")))?;
    if text.contains("\"KernelSpecification\"") {
        return Ok(None);
    }
    Recorded::parse(&text).map(Some).map_err(|e| Failure::input(format!("{what}: {e}: expected a recorded space")))
}

fn of_recorded(file: &str, recorded: &Recorded) -> Value {
    let axes = recorded.space.axes();
    let trial = |i: usize| {
        let config: serde_json::Map<String, Value> = axes
            .iter()
            .zip(recorded.point(i))
            .map(|(a, v)| (a.name().to_string(), json!(a.values()[usize::from(v)])))
            .collect();
        let (us, outcome) = match recorded.time_ms(i) {
            Ok(ms) => (Some(ms * 1e3), "measured".to_string()),
            Err(why) => (None, why.to_string()),
        };
        json!({"variant": recorded.kernel, "config": config, "us": us, "rounds": 0, "samples": [], "outcome": outcome,
               "reason": "", "command": format!("warplap replay --space {file}")})
    };
    let axis = |a: &warplap::core::space::Axis| json!({"name": a.name(), "values": a.values().iter().map(ToString::to_string).collect::<Vec<_>>()});
    json!({
        "problem": file, "facts": [recorded.device.clone(), format!("{} configs recorded", recorded.len())],
        "winner": null, "work": {"flops": 0, "bytes": 0}, "ceilings": null,
        "axes": axes.iter().map(axis).collect::<Vec<_>>(),
        "trials": (0..recorded.len()).map(trial).collect::<Vec<_>>(), "skipped": [],
    })
}

fn of_kept(kept: &Kept) -> Value {
    let Edition { verdict, work, skipped, .. } = &kept.edition;
    let winner = &verdict.winner;
    let standing = kept.variants.iter().find(|v| v.id == winner.variant && !v.axes.is_empty());
    let standing = standing.or_else(|| kept.variants.iter().max_by_key(|v| v.axes.len()));
    let axes = standing.map_or(&[][..], |s| &s.axes[..]);
    let facts = [
        kept.device.clone(),
        format!("{} trials, {} rounds, {} launches", kept.edition.trials.len(), verdict.rounds, verdict.launches),
        format!("{:.1} s", kept.edition.seconds),
        format!("warplap {}", kept.edition.program),
        kept.edition.soft.iter().map(|(k, v)| format!("{k} {v}")).collect::<Vec<_>>().join(", "),
    ];
    json!({
        "problem": kept.problem, "key": kept.key, "facts": facts,
        "winner": {"variant": winner.variant, "config": winner.config, "us": verdict.median_us, "ci_us": verdict.ci_us,
                   "grade": verdict.grade.word()},
        "work": work, "ceilings": kept.ceilings.as_ref().map(|c| json!({"flops": c.0, "bandwidth": c.1})),
        "axes": axes.iter().map(|(name, values)| json!({"name": name, "values": values})).collect::<Vec<_>>(),
        "trials": kept.edition.trials.iter().map(|t| trial(t, kept)).collect::<Vec<_>>(),
        "skipped": skipped.iter().map(|s| json!({"variant": s.variant, "configs": s.configs, "reason": s.reason})).collect::<Vec<_>>(),
    })
}

fn trial(trial: &Trial, kept: &Kept) -> Value {
    let nothing = Measurement::default();
    let (measurement, outcome, reason) = match &trial.outcome {
        Outcome::Measured(m) if trial.candidate == kept.edition.verdict.winner => (m, "won", String::new()),
        Outcome::Measured(m) => (m, "stayed", String::new()),
        Outcome::Rejected(Rejection::Outpaced { measurement }) => (measurement, "outpaced", String::new()),
        Outcome::Rejected(rejection) => (&nothing, rejection.word(), rejection.to_string()),
    };
    let mut command = format!("warplap bench '{}' --variant {}", kept.asked, trial.candidate.variant);
    if !trial.candidate.config.0.is_empty() {
        command.push_str(&format!(" --config {}", trial.candidate.config));
    }
    json!({
        "variant": trial.candidate.variant, "config": trial.candidate.config, "us": trial.median_us(),
        "rounds": measurement.rounds, "samples": measurement.samples_us, "outcome": outcome, "reason": reason,
        "command": command,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_end_the_script_it_stands_in() {
        let html = page(&json!({"problem": "</script><script>alert(1)</script>"}));
        assert!(!html.contains("alert(1)</script>") && html.contains("\\u003c/script>"));
        assert!(!html.contains(SLOT));
    }
}
