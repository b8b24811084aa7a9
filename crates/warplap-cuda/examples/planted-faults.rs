//! Races candidates with planted faults among good ones, and counts how many were contained: the caller's context
//! alive, the others measured, the reason recorded. Needs an NVIDIA GPU and NVRTC, or the stand-in library.
//!
//! `planted-faults [HOW_MANY]` (default 100), with `WARPLAP_STORE` as the directory to keep things in.
#![allow(clippy::print_stdout, unreachable_pub, dead_code)]

#[path = "../tests/planted/mod.rs"]
mod planted;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use planted::{KINDS, Planted, RECITING, Sum, SumProblem, catalog, grounds};
use warplap_core::candidate::{Outcome, Trial};
use warplap_core::device::Device;
use warplap_core::engine::Tuner;
use warplap_core::progress::Silent;
use warplap_core::quarantine;
use warplap_core::settings::{Budget, Settings};
use warplap_core::store::open_or_memory;
use warplap_cuda::{Cuda, serve_if_asked};

/// One word for what became of a candidate.
fn word(trial: &Trial) -> &'static str {
    match &trial.outcome {
        Outcome::Rejected(rejection) if !trial.is_right() => rejection.word(),
        _ => "right",
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    serve_if_asked(&grounds());
    let wanted: i64 = std::env::args().nth(1).map_or(Ok(100), |n| n.parse())?;
    let bad = KINDS.iter().filter(|k| k.becomes != "right").count() as i64;
    // As even as it goes: the first kinds take what is left over.
    let share = |i: i64| wanted / bad + i64::from(i < wanted % bad);
    let mut nth = 0;
    let kinds: Vec<Planted> = KINDS
        .iter()
        .map(|k| {
            nth += i64::from(k.becomes != "right");
            Planted { repeat: if k.becomes == "right" { 3 } else { share(nth - 1) }, ..*k }
        })
        .filter(|k| k.repeat > 0)
        .collect();

    let directory = std::env::var_os("WARPLAP_STORE").unwrap_or_else(|| "planted-store".into());
    let opened = open_or_memory(Some(directory.as_ref()));
    let store = opened.store;
    let device = Arc::new(Cuda::open(0)?.with_artifacts(directory.as_ref()));
    println!("{:?}\n{:?}", device.chip(), device.fingerprint().soft);
    let settings = Settings {
        budget: Budget { seconds: 400.0, good_enough: 2.0, ..Budget::default() },
        search: "exhaustive".into(),
        ..Settings::default()
    };
    let problem = SumProblem { n: 1 << 16 };
    let tuner = Tuner::<Sum, Cuda>::new(device.clone(), catalog(&kinds), store.clone(), settings.clone());
    let started = Instant::now();
    let tuned = tuner.tune(&problem, &Silent)?;
    let seconds = started.elapsed().as_secs_f64();
    let alive = device.context_health();

    let mut table: BTreeMap<&str, (i64, i64, BTreeMap<String, i64>)> = BTreeMap::new();
    let trials = &tuned.edition.trials;
    for kind in &kinds {
        let row = table.entry(kind.id).or_default();
        row.0 = kind.repeat;
        for trial in trials.iter().filter(|t| t.candidate.variant == kind.id) {
            row.1 += i64::from(word(trial) == kind.becomes && alive.is_ok());
            let said = match &trial.outcome {
                Outcome::Rejected(rejection) if !trial.is_right() => rejection.to_string(),
                _ => "right".into(),
            };
            *row.2.entry(said).or_default() += 1;
        }
    }
    println!("{:<16} {:>7} {:>9}  reason", "kind", "planted", "contained");
    let (mut planted, mut contained, mut good, mut measured) = (0, 0, 0, 0);
    for kind in &kinds {
        let (count, as_expected, said) = &table[kind.id];
        let reason = said.keys().next().map_or("none", String::as_str);
        println!("{:<16} {count:>7} {as_expected:>9}  {}", kind.id, reason.chars().take(110).collect::<String>());
        match kind.becomes {
            "right" => (good, measured) = (good + count, measured + as_expected),
            _ => (planted, contained) = (planted + count, contained + as_expected),
        }
    }
    let kept = quarantine::all(&store).len();
    println!("contained {contained} of {planted}; good candidates measured {measured} of {good}; {seconds:.1} s");
    println!("caller's context: {}", alive.map_or_else(|e| e.to_string(), |()| "alive".into()));
    println!("in quarantine {kept}; winner {}", tuned.edition.verdict.winner);

    let tuner = Tuner::<Sum, Cuda>::new(device.clone(), catalog(RECITING), store.clone(), settings.clone());
    let reciting = tuner.tune(&SumProblem { n: 50_000 }, &Silent)?.edition;
    for trial in reciting.trials.iter().filter(|t| t.candidate.variant == "recites") {
        let (said, winner) = (word(trial), &reciting.verdict.winner.variant);
        println!("one that recites its last answer: {said}, {winner} won ({:?})", trial.outcome);
    }

    // Once more: nobody in quarantine is tried, nobody who passed needs a worker.
    let again = Settings { again: true, ..settings };
    let tuner = Tuner::<Sum, Cuda>::new(device.clone(), catalog(&kinds), store, again);
    let started = Instant::now();
    let tuned = tuner.tune(&problem, &Silent)?;
    let quarantined: u64 =
        tuned.edition.skipped.iter().filter(|s| s.reason.starts_with("in quarantine")).map(|s| s.configs).sum();
    println!("raced again: {quarantined} not tried for being in quarantine; {:.2} s", started.elapsed().as_secs_f64());
    Ok(())
}
