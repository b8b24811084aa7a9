//! `warplap explain`: why a winner won. What the store knows of a problem comes in; samples, losers, rejections and how
//! the lookup matched go out. Nothing is measured.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use serde_json::json;
use warplap::any::{AnyTuner, StoredAnswer};
use warplap::core::candidate::Outcome;
use warplap::core::record::TuningRun;
use warplap::{Bucket, Mode, Settings};

use crate::answer::{Answer, how};
use crate::console::{BAD, Console, DIM, GOOD, HEAD, NAME, WARN, paint};
use crate::failure::{Exit, Failure};
use crate::machine::Machine;
use crate::race_args::{self, Where};
use crate::ranking;
use crate::story;
use crate::strip::strip;
use crate::suite;
use crate::table::{Cell, Table};
use crate::units;

/// Arguments of `explain`.
#[derive(Args)]
pub(crate) struct Explain {
    /// What to explain: op:field=value,…
    #[arg(value_name = "PROBLEM")]
    problem: String,
    /// The bucket of the key: changing, exact or pow2
    #[arg(long, value_name = "BUCKET", default_value = "changing", value_parser = race_args::bucket)]
    bucket: Bucket,
    #[command(flatten)]
    place: Where,
}

impl Explain {
    pub(crate) fn run(&self, root: Option<&Path>, console: &Console) -> Result<Exit, Failure> {
        let asked = suite::asked(&self.problem, None)?;
        let machine = Machine::open_to_read(root, asked.wanted(self.place.device)?)?;
        let settings = Settings {
            mode: Mode::Replay,
            bucket: self.bucket.clone(),
            policy: self.place.policy(&machine.device),
            ..Settings::default()
        };
        let tuner = asked.open(&machine.device, machine.store.clone(), settings)?;
        let result = tuner.find(&asked.problem)?;
        let (winner, chosen) = tuner.choose(&asked.problem)?;
        let answer = Answer {
            joules: None,
            objective: asked.spec().map_or_else(Default::default, |s| s.objective.clone()),
            op: tuner.op(),
            problem: asked.problem.clone(),
            key: result.key.text.clone(),
            device: tuner.device_slug(),
            mode: "replay",
            how: chosen,
            winner,
            edition: result.edition.clone(),
            measured_at: result.measured_at.clone(),
            note: None,
            seconds: 0.0,
            stages: Vec::new(),
            builds: None,
            variants: tuner.variants(None)?,
        };
        if console.json {
            let mut line = answer.json();
            line["matched"] = result.matched.as_str().into();
            line["newcomers"] = json!(result.newcomers);
            line["record"] = json!(result.record);
            console.line(&line)?;
        } else {
            console.say(self.page(&answer, &result, &*tuner, machine.store.id(), console)?)?;
        }
        Ok(if result.edition.is_some() { Exit::Ok } else { Exit::NoAnswer })
    }

    fn page(
        &self,
        answer: &Answer,
        result: &StoredAnswer,
        tuner: &dyn AnyTuner,
        local: &str,
        console: &Console,
    ) -> Result<String, Failure> {
        let mut page = format!("{}\n", paint(HEAD, &answer.problem));
        let mut fact =
            |name: &str, text: String| page.push_str(&format!("  {} {text}\n", paint(DIM, format!("{name:<9}"))));
        fact("key", result.key.text.replacen(&format!("{}:", answer.op), "", 1).replace(',', " ").replace(';', "  | "));
        fact("device", answer.device.clone());
        fact("lookup", result.matched.clone());
        let Some(edition) = &result.edition else {
            fact("used", format!("{} ({}: first choice by priority)", answer.winner, how(&answer.how)));
            let standing = tuner.variants(Some(&answer.problem))?;
            let candidates: usize = standing.iter().map(|s| s.configs).sum();
            fact("to race", format!("{candidates} candidates; warplap tune {}", answer.problem));
            return Ok(page);
        };
        let why = match &answer.how {
            warplap::How::Default(why) => why.clone(),
            chosen => format!("{}, where nothing is measured", how(chosen)),
        };
        fact("answers", format!("{} ({why})", answer.winner));
        if let Some(at) = &result.measured_at {
            fact("sizes", paint(WARN, format!("what follows was measured at {at} and not at the size asked for")));
        }
        let verdict = &edition.verdict;
        let age =
            SystemTime::now().duration_since(UNIX_EPOCH + Duration::from_secs(edition.tuned_at)).unwrap_or_default();
        let origin = if edition.origin == local { "here".into() } else { format!("in store {}", edition.origin) };
        fact("measured", format!("{} {origin}, by warplap {}", units::ago(age), edition.program));
        let (low, high) = (units::time(verdict.ci_us[0]), units::time(verdict.ci_us[1]));
        fact(
            "winner",
            format!("{}  {}  [{low} … {high}]", paint(NAME, &verdict.winner), units::time(verdict.median_us)),
        );
        if let Some(text) = answer.raced_for() {
            fact("raced for", text);
        }
        let flops = edition.work.flops / verdict.median_us * 1e6;
        let share = units::percent(answer.roofline());
        fact("reaches", format!("{}, {share} of the roofline", units::rate(flops)));
        if let Some(m) = edition.ranked().first().map(|r| r.measurement) {
            let marks = paint(GOOD, strip(&m.samples_us, 48));
            let spread = format!(
                "{} of {}, spread {:.1} %",
                units::some(m.samples_us.len(), "sample", "samples"),
                units::some(m.batch as usize, "launch", "launches"),
                100.0 * m.sigma
            );
            fact("samples", format!("{marks}  {spread}"));
        }
        let speed = |name: &str, ratio| format!("{} the {name}", units::times_between(ratio));
        let (reference, library) = (answer.over_reference(), answer.over_library());
        fact("speed", format!("{}, {}", speed("reference", reference), speed("library", library)));
        fact("decided", story::decided(edition));
        if let Some(called) = story::called(edition) {
            fact("called", called);
        }
        if !result.newcomers.is_empty() {
            fact("new since", paint(WARN, format!("{} (the next tune races them)", result.newcomers.join(", "))));
        }
        page.push_str(&ranking::table(edition, console));
        page.push_str(&rejected(edition, console));
        page.push_str(&skipped(edition, console));
        Ok(page)
    }
}

fn rejected(edition: &TuningRun, console: &Console) -> String {
    let mut table = Table::new(&["rejected", "~why"]);
    for trial in edition.trials.iter().filter(|t| !t.is_right()) {
        if let Outcome::Rejected(rejection) = &trial.outcome {
            table.row([Cell::from(&trial.candidate), Cell::styled(rejection, BAD)]);
        }
    }
    if table.is_empty() { String::new() } else { format!("\n{}", table.render(console.width())) }
}

fn skipped(edition: &TuningRun, console: &Console) -> String {
    let mut table = Table::new(&["skipped", ">configs", "~why"]);
    for s in &edition.skipped {
        table.row([s.variant.as_str().into(), s.configs.into(), Cell::styled(&s.reason, DIM)]);
    }
    if table.is_empty() { String::new() } else { format!("\n{}", table.render(console.width())) }
}
