//! The facts of a report: an edition, or a race that is still on, comes in; what the page draws goes out as JSON.

use serde_json::{Map, Value, json};
use warplap::any::VariantStatus;
use warplap::core::candidate::{Candidate, Outcome, Trial};
use warplap::core::measure::Measurement;
use warplap::core::record::{Skipped, TuningRun};
use warplap::core::rejection::Rejection;
use warplap::core::verdict::Grade;

use crate::{story, units};

const PAGE: &str = include_str!("../pages/report.html");

/// Where the page's facts stand in the template.
const SLOT: &str = "/*DATA*/";

/// The page with its facts inside.
pub(crate) fn page(facts: &Value) -> String {
    // In a script element nothing but its end is markup, and no end can be written without this sign.
    PAGE.replacen(SLOT, &facts.to_string().replace('<', "\\u003c"), 1)
}

/// What a report is about.
pub(crate) struct Subject<'s> {
    /// As the user asked for it.
    pub(crate) asked: &'s str,
    /// What it is called.
    pub(crate) title: String,
    pub(crate) problem: &'s str,
    pub(crate) key: &'s str,
    pub(crate) device: &'s str,
    pub(crate) variants: &'s [VariantStatus],
    /// FLOP/s and bytes a second at best, where they were measured.
    pub(crate) ceilings: Option<(f64, f64)>,
    /// What is to be said first where it was measured at another size.
    pub(crate) other_size: Option<&'s str>,
}

impl Subject<'_> {
    /// The facts of a tuned problem.
    pub(crate) fn tuned(&self, edition: &TuningRun) -> Value {
        let verdict = &edition.verdict;
        let winner = &verdict.winner;
        let mut lines: Vec<String> = self.other_size.iter().map(ToString::to_string).collect();
        lines.extend(story::beside(edition, self.variants));
        lines.push(story::decided(edition));
        lines.extend(story::reaches(edition));
        let notes = [
            self.device.to_string(),
            units::some(edition.trials.len(), "trial", "trials"),
            format!("{:.1} s", edition.seconds),
            format!("warplap {}", edition.program),
            edition.soft.iter().map(|(k, v)| format!("{k} {v}")).collect::<Vec<_>>().join(", "),
        ];
        let mut facts = self.facts(&notes, Some(winner));
        facts["headline"] = story::headline(edition).into();
        facts["lines"] = json!(lines);
        facts["legend"] = format!("±: half the 95 % interval; {}", Grade::LEGEND).into();
        facts["winner"] = json!({"variant": winner.variant, "config": winner.config, "us": verdict.median_us,
                                 "ci_us": verdict.ci_us, "grade": verdict.grade.word()});
        facts["work"] = json!(edition.work);
        facts["floor_us"] = json!(edition.floor_us);
        let skipped = |s: &Skipped| json!({"variant": s.variant, "configs": s.configs, "reason": s.reason});
        facts["skipped"] = edition.skipped.iter().map(skipped).collect();
        let ranked = edition.ranked();
        let trial = |t: &Trial| {
            let mut line = self.trial(t, t.candidate == *winner);
            if let Some(r) = ranked.iter().find(|r| r.trial.candidate == t.candidate) {
                line["us"] = r.time_us.into();
                line["behind"] = json!({"by": r.behind, "ci": r.ci, "tie": r.tie});
            }
            line
        };
        facts["trials"] = edition.trials.iter().map(trial).collect();
        facts
    }

    /// The facts of a race that is on: what has ended so far.
    pub(crate) fn racing(&self, headline: &str, trials: &[Trial]) -> Value {
        let notes = [self.device.to_string(), units::some(trials.len(), "trial so far", "trials so far")];
        let best = trials.iter().filter(|t| t.is_right()).min_by(|a, b| cost(a).total_cmp(&cost(b)));
        let mut facts = self.facts(&notes, best.map(|t| &t.candidate));
        facts["live"] = true.into();
        facts["headline"] = headline.into();
        facts["lines"] =
            json!(["Still racing: times are of different moments until the verdict sets them in relation."]);
        facts["trials"] = trials.iter().map(|t| self.trial(t, false)).collect();
        facts
    }

    fn facts(&self, notes: &[String], leader: Option<&Candidate>) -> Value {
        let own = |v: &&VariantStatus| leader.is_some_and(|l| l.variant == v.id) && !v.axes.is_empty();
        let standing = self.variants.iter().find(own).or_else(|| self.variants.iter().max_by_key(|v| v.axes.len()));
        let axes = standing.map_or(&[][..], |s| &s.axes[..]);
        let axes: Vec<Value> = axes.iter().map(|(name, values)| json!({"name": name, "values": values})).collect();
        json!({
            "title": self.title, "problem": self.problem, "key": self.key, "facts": notes, "live": false,
            "winner": null, "work": {"flops": 0, "bytes": 0}, "skipped": [], "axes": axes,
            "ceilings": self.ceilings.map(|c| json!({"flops": c.0, "bandwidth": c.1})),
        })
    }

    fn trial(&self, trial: &Trial, won: bool) -> Value {
        let nothing = Measurement::default();
        let (measurement, outcome, reason) = match &trial.outcome {
            Outcome::Measured(m) if won => (m, "won", String::new()),
            Outcome::Measured(m) => (m, "stayed", String::new()),
            Outcome::Rejected(Rejection::Outpaced { measurement }) => (measurement, "outpaced", String::new()),
            Outcome::Rejected(rejection) => (&nothing, rejection.word(), rejection.to_string()),
        };
        let mut command = format!("warplap bench '{}' --variant {}", self.asked, trial.candidate.variant);
        if !trial.candidate.config.0.is_empty() {
            command.push_str(&format!(" --config {}", trial.candidate.config));
        }
        json!({
            "variant": trial.candidate.variant, "config": trial.candidate.config, "us": trial.median_us(),
            "rounds": measurement.rounds, "samples": measurement.samples_us, "outcome": outcome, "reason": reason,
            "command": command, "takes": measurement.resources,
        })
    }
}

fn cost(trial: &Trial) -> f64 {
    trial.cost().unwrap_or(f64::INFINITY)
}

/// The facts of a recorded space.
pub(crate) fn recorded(file: &str, recorded: &warplap::report::recorded::Recorded) -> Value {
    let axes = recorded.space.axes();
    let trial = |i: usize| {
        let config: Map<String, Value> = axes
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
    let best = (0..recorded.len()).filter_map(|i| recorded.time_ms(i).ok()).fold(f64::INFINITY, f64::min);
    let headline = if best.is_finite() { format!("the best takes {}", units::time(best * 1e3)) } else { String::new() };
    let values = |a: &warplap::core::space::Axis| a.values().iter().map(ToString::to_string).collect::<Vec<_>>();
    json!({
        "title": recorded.kernel, "problem": file, "live": false, "headline": headline, "lines": [],
        "facts": [recorded.device.clone(), format!("{} configs recorded in {file}", recorded.len())],
        "winner": null, "work": {"flops": 0, "bytes": 0}, "ceilings": null,
        "axes": axes.iter().map(|a| json!({"name": a.name(), "values": values(a)})).collect::<Vec<_>>(),
        "trials": (0..recorded.len()).map(trial).collect::<Vec<_>>(), "skipped": [],
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
