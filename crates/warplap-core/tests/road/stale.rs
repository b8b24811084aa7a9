//! What changes between two runs: code, catalogs, drivers, keys.

use std::sync::Arc;

use warplap_core::bucket::Bucket;
use warplap_core::dtype::DType;
use warplap_core::engine::How;
use warplap_core::key::Key;
use warplap_core::measure::{CacheState, Clock, Policy, Queueing};
use warplap_core::op::Op as _;
use warplap_core::settings::Mode;
use warplap_core::store::Match;
use warplap_core::variant::Fit;

use crate::fake::{Fake, Row, Scale, ScaleProblem, problem, row};
use crate::support::*;

#[test]
fn changed_code_is_stale_and_raced_again() {
    let store = memory();
    let rows = [row("reference", 9e-3), row("a", 1e-3), row("b", 2e-3)];
    tune(&tuner(&rows, &store, settings()), &problem(64));
    // The winner's code changed, and became slow.
    let changed = [rows[0].clone(), row("a", 3e-3).source("2"), rows[2].clone()];
    let replay = tuner(&changed, &store, mode(Mode::Replay));
    let chosen = replay.choose(&problem(64)).unwrap();
    assert_eq!((chosen.candidate.variant.as_str(), chosen.how), ("a", How::Stale));
    assert_eq!(replay.device().counts()[1], 0, "proved, not measured");
    let next = tuner(&changed, &store, settings());
    let tuned = tune(&next, &problem(64));
    assert!(!tuned.from_store && tuned.edition.verdict.winner.variant == "b");
    assert!(tune(&next, &problem(64)).from_store);
    // A loser's code changed, and became fast: it alone races the winner.
    let builds = [rows[0].count.builds(), rows[2].count.builds()];
    let better = [rows[0].clone(), row("a", 1.5e-3).source("3"), rows[2].clone()];
    let tuned = tune(&tuner(&better, &store, settings()), &problem(64));
    assert_eq!(tuned.edition.verdict.winner.variant, "a");
    assert_eq!([rows[0].count.builds(), rows[2].count.builds()], [builds[0], builds[1] + 1]);
    let sources = tuned.edition.trials.iter().filter(|t| t.candidate.variant == "a").count();
    assert_eq!(sources, 1, "code that is not there any more is not in the record");
}

#[test]
fn another_driver_makes_records_stale_and_going_back_finds_them_again() {
    let store = memory();
    let rows = [row("reference", 9e-3), row("old_best", 1e-3), row("new_best", 2e-3)];
    let one = on(Fake::named("chip", "1.0"), &rows, &store, settings());
    tune(&one, &problem(64));
    let upgraded = || [rows[0].clone(), row("old_best", 3e-3), rows[2].clone()];
    let two = |m| on(Fake::named("chip", "2.0"), &upgraded(), &store, mode(m));
    let replay = two(Mode::Replay);
    assert!(matches!(
        store.lookup(&replay.key(&problem(64)), warplap_core::device::Device::fingerprint(&**replay.device())),
        Match::Near(_)
    ));
    let chosen = replay.choose(&problem(64)).unwrap();
    assert_eq!((chosen.candidate.variant.as_str(), chosen.how), ("old_best", How::Stale));
    let recorder = two(Mode::Record);
    assert_eq!(recorder.choose(&problem(64)).unwrap().how, How::Stale);
    assert_eq!(store.misses().len(), 1, "a stale answer is a miss to be tuned later");
    let tuned = tune(&two(Mode::Tune), &problem(64));
    assert_eq!((tuned.from_store, tuned.edition.verdict.winner.variant.as_str()), (false, "new_best"));
    assert_eq!(one.record(&problem(64)).unwrap().editions.len(), 2);
    // Back again: the first edition answers, and nothing is measured.
    let back = on(Fake::named("chip", "1.0"), &rows, &store, settings());
    let tuned = tune(&back, &problem(64));
    assert_eq!((tuned.from_store, tuned.edition.verdict.winner.variant.as_str()), (true, "old_best"));
    assert_eq!(back.device().counts(), [0, 0, 0]);
}

#[test]
fn changing_any_one_fact_of_the_key_misses() {
    let store = memory();
    let rows = [row("reference", 2e-3), row("a", 1e-3)];
    let p = problem(64);
    tune(&tuner(&rows, &store, settings()), &p);
    let device = Fake::new();
    let print = warplap_core::device::Device::fingerprint(&device);
    let result = |key: &Key| !matches!(store.lookup(key, print), Match::Miss);
    let plain = settings();
    let key = |p: &ScaleProblem, bucket: &Bucket, policy| Scale::key(p, bucket, policy);
    assert!(result(&key(&p, &plain.bucket, plain.policy)));
    let others = [
        ScaleProblem { n: 65, ..p.clone() },
        ScaleProblem { step: 2, ..p.clone() },
        ScaleProblem { dtype: DType::F16, ..p.clone() },
        ScaleProblem { label: "x".into(), ..p.clone() },
    ];
    for other in others {
        assert!(!result(&key(&other, &plain.bucket, plain.policy)), "{other:?}");
    }
    let own = Bucket::Own("mine".into(), Arc::new(|_, s| s));
    for bucket in [Bucket::PowerOfTwo, own] {
        assert!(!result(&key(&p, &bucket, plain.policy)), "{bucket:?}");
    }
    let policies = [
        Policy { queueing: Queueing::Graph, ..plain.policy },
        Policy { cache: CacheState::Cold, ..plain.policy },
        Policy { clock: Clock::BackToBack, ..plain.policy },
    ];
    for policy in policies {
        assert!(!result(&key(&p, &plain.bucket, policy)), "{policy}");
    }
    // Another chip is foreign, never this one's.
    let other = Fake::named("Fake 2", "1.0");
    let there = store.lookup(&key(&p, &plain.bucket, plain.policy), warplap_core::device::Device::fingerprint(&other));
    assert!(matches!(there, Match::Foreign(..)));
}

/// What a catalog may become between two runs.
fn mutated(rows: &[Row], rng: &mut fastrand::Rng, times: &mut Vec<f64>) -> Vec<Row> {
    let mut rows = rows.to_vec();
    for _ in 0..rng.usize(1..4) {
        match rng.u8(..4) {
            0 if rows.len() > 2 => drop(rows.remove(rng.usize(1..rows.len()))),
            1 => {
                let at = rng.usize(1..=rows.len());
                rows.insert(at, new_row(&format!("v{}", times.len()), rng, times));
            }
            2 => {
                let at = rng.usize(1..rows.len());
                rows[at] = new_row(&rows[at].id.clone(), rng, times).source(&times.len().to_string());
            }
            _ => rng.shuffle(&mut rows[1..]),
        }
    }
    rows
}

/// Every time is drawn once, and they are an eighth apart: nobody ties.
fn new_row(id: &str, rng: &mut fastrand::Rng, times: &mut Vec<f64>) -> Row {
    let configs = rng.usize(1..3);
    row(id, 1.0).configs(&times.split_off(times.len() - configs))
}

fn best(rows: &[Row]) -> f64 {
    rows.iter().flat_map(|r| r.seconds.iter().copied()).fold(f64::INFINITY, f64::min)
}

#[test]
fn a_thousand_changed_catalogs_have_the_right_winner_or_a_miss() {
    let mut rng = fastrand::Rng::with_seed(17);
    for case in 0..500 {
        let store = memory();
        let p = problem(4);
        let mut times: Vec<f64> = (0..40).map(|i| 1e-3 * 1.13f64.powi(i)).collect();
        rng.shuffle(&mut times);
        let reference = || row("reference", 9e-2).fit(Fit::LOW);
        let first: Vec<Row> = std::iter::once(reference())
            .chain((0..rng.usize(1..5)).map(|i| new_row(&format!("f{i}"), &mut rng, &mut times)))
            .collect();
        let mut rows = first.clone();
        let quick = |m| warplap_core::settings::Settings { seed: case, ..mode(m) };
        tune(&tuner(&rows, &store, quick(Mode::Tune)), &p);
        for _ in 0..2 {
            rows = mutated(&rows, &mut rng, &mut times);
            // Without measuring: whoever answers is in the catalog with a config of its own.
            let replay = tuner(&rows, &store, quick(Mode::Replay));
            assert!(launch(&replay, &p).unwrap());
            let chosen = replay.choose(&p).unwrap();
            let now = rows.iter().find(|r| r.id == chosen.candidate.variant).expect("it is in the catalog");
            assert!(chosen.candidate.config.size("i").is_some_and(|i| i < now.seconds.len()), "case {case}");
            if chosen.how == How::Stored {
                assert_eq!(chosen.candidate.source, warplap_core::variant::Variant::source(now), "case {case}");
            }
            // With measuring: the fastest of those there are, by name and config.
            let e = tune(&tuner(&rows, &store, quick(Mode::Tune)), &p).edition;
            let won = rows.iter().find(|r| r.id == e.verdict.winner.variant).expect("it is in the catalog");
            let seconds = won.seconds[e.verdict.winner.config.size("i").unwrap()];
            assert_eq!(seconds, best(&rows[1..]), "case {case}");
            assert!(tune(&tuner(&rows, &store, quick(Mode::Tune)), &p).from_store, "case {case}: then it is a hit");
        }
    }
}

/// Two programs on one machine: one has a library of its own besides, which is the fastest.
fn with_a_library(version: &str, seconds: f64) -> [Row; 4] {
    let host = row("host_product", seconds).source(version).library();
    [row("reference", 9e-3), row("a", 1e-3), row("b", 2e-3), host]
}

#[test]
fn what_one_program_tuned_answers_in_another_and_only_who_is_new_there_races() {
    let store = memory();
    let rows = with_a_library("1", 5e-4);
    let plain = || tuner(&rows[..3], &store, settings());
    let host = |rows: &[Row]| on(Fake::new().beside("host", "1"), rows, &store, settings());
    assert_eq!(tune(&plain(), &problem(64)).edition.verdict.winner.variant, "a");
    // The other program takes that over: its own library alone races the winner, and wins.
    let builds = rows[2].count.builds();
    let tuned = tune(&host(&rows), &problem(64));
    assert_eq!((tuned.from_store, tuned.edition.verdict.winner.variant.as_str()), (false, "host_product"));
    assert_eq!(tuned.edition.soft["host"], "1");
    assert_eq!(rows[2].count.builds(), builds, "who had lost does not race again");
    // Both answer from the store from now on, each with the best that it has.
    for _ in 0..2 {
        let (one, other) = (tune(&plain(), &problem(64)), tune(&host(&rows), &problem(64)));
        assert!(one.from_store && other.from_store);
        assert_eq!(one.edition.verdict.winner.variant, "a");
        assert_eq!(other.edition.verdict.winner.variant, "host_product");
    }
    // Somebody new is faster than both: the first program finds it, the other one lets its library race that one.
    let more = [rows.to_vec(), vec![row("c", 2e-4)]].concat();
    let found = [&more[..3], &more[4..]].concat();
    assert_eq!(tune(&tuner(&found, &store, settings()), &problem(64)).edition.verdict.winner.variant, "c");
    let tuned = tune(&host(&more), &problem(64));
    assert_eq!((tuned.from_store, tuned.edition.verdict.winner.variant.as_str()), (false, "c"));
    assert!(
        tune(&host(&more), &problem(64)).from_store
            && tune(&tuner(&found, &store, settings()), &problem(64)).from_store
    );
}

#[test]
fn a_program_without_the_winner_is_answered_by_the_best_that_it_has() {
    let store = memory();
    let rows = with_a_library("1", 5e-4);
    tune(&on(Fake::new().beside("host", "1"), &rows, &store, settings()), &problem(64));
    let plain = tuner(&rows[..3], &store, settings());
    let tuned = tune(&plain, &problem(64));
    assert_eq!((tuned.from_store, tuned.edition.verdict.winner.variant.as_str()), (true, "a"));
    assert_eq!(plain.device().counts()[1], 0, "nothing is timed");
    let chosen = tuner(&rows[..3], &store, mode(Mode::Replay)).choose(&problem(64)).unwrap();
    assert_eq!((chosen.candidate.variant.as_str(), chosen.how), ("a", How::Stored));
}

#[test]
fn another_version_of_a_library_races_anew_and_the_others_stay() {
    for (seconds, winner) in [(3e-3, "a"), (4e-4, "host_product")] {
        let store = memory();
        let rows = with_a_library("1", 5e-4);
        tune(&on(Fake::new().beside("host", "1"), &rows, &store, settings()), &problem(64));
        let builds = [rows[1].count.builds(), rows[2].count.builds()];
        let upgraded = [rows[..3].to_vec(), vec![with_a_library("2", seconds)[3].clone()]].concat();
        let new = || on(Fake::new().beside("host", "2"), &upgraded, &store, settings());
        let tuned = tune(&new(), &problem(64));
        assert_eq!((tuned.from_store, tuned.edition.verdict.winner.variant.as_str()), (false, winner));
        assert!(rows[1].count.builds() > builds[0], "the best of the others defends their place");
        assert_eq!(rows[2].count.builds(), builds[1], "the others stay");
        assert!(tune(&new(), &problem(64)).from_store);
        // Back to the version before: what was found beside it answers.
        let back = on(Fake::new().beside("host", "1"), &rows, &store, settings());
        let tuned = tune(&back, &problem(64));
        assert_eq!((tuned.from_store, tuned.edition.verdict.winner.variant.as_str()), (true, "host_product"));
    }
}
