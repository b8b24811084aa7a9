//! Provisional records: what was measured under bad conditions answers for now, and the next tuning goes on with it.

use std::sync::atomic::Ordering;

use warplap_core::engine::{AnyTuner, How};
use warplap_core::settings::{Budget, Settings};
use warplap_core::verdict::Grade;

use crate::fake::{Fake, Row, problem, row};
use crate::support::*;

fn rows() -> Vec<Row> {
    vec![row("reference", 9e-3), row("far", 3e-3), row("near", 1.02e-3), row("best", 1e-3)]
}

#[test]
fn a_contended_record_answers_at_once_and_the_next_tune_goes_on_with_it() {
    let (rows, store) = (rows(), memory());
    let device = Fake::new();
    device.contended.store(true, Ordering::SeqCst);
    let tuner = on(device, &rows, &store, settings());
    assert_eq!(tune(&tuner, &problem(64)).edition.verdict.grade, Grade::Contended);
    let open = AnyTuner::provisional(&tuner);
    assert_eq!((open.len(), open[0].grade), (1, Grade::Contended));

    let before: Vec<u64> = rows.iter().map(|r| r.count.builds()).collect();
    let laps = tuner.device().counts()[1];
    assert!(launch(&tuner, &problem(64)).unwrap());
    assert_eq!(on(Fake::new(), &rows, &store, settings()).choose(&problem(64)).unwrap().how, How::Stored);
    assert_eq!(tuner.device().counts()[1], laps, "a launch never waits for a better record");

    tuner.device().contended.store(false, Ordering::SeqCst);
    let built: Vec<u64> = rows.iter().map(|r| r.count.builds()).collect();
    let tuned = tuner.tune(&problem(64), &warplap_core::progress::Silent).unwrap();
    assert_eq!((tuned.from_store, tuned.edition.verdict.grade), (false, Grade::Clean));
    assert!(tuned.note.as_ref().is_some_and(|n| n == "went on with a contended record, now clean"), "{:?}", tuned.note);
    let again: Vec<u64> = rows.iter().zip(&built).map(|(r, b)| r.count.builds() - b).collect();
    assert_eq!(again, [0, 0, 1, 1], "only those near the winner raced again ({before:?} before)");
    let ranked = tuned.edition.ranked();
    let order: Vec<&str> = ranked.iter().map(|r| r.trial.candidate.variant.as_str()).collect();
    assert_eq!(order, ["best", "near", "far", "reference"], "and nobody was forgotten");
    assert!(ranked.iter().all(|r| r.won || r.ci.is_some()), "each with its gap to the winner");

    assert!(tuner.provisional().is_empty());
    assert!(tune(&tuner, &problem(64)).from_store);
}

#[test]
fn a_worse_record_never_takes_the_place_of_a_better_one() {
    let (rows, store) = (rows(), memory());
    let first = tuner(&rows, &store, settings());
    let clean = tune(&first, &problem(64)).edition;
    let device = Fake::new();
    device.contended.store(true, Ordering::SeqCst);
    let again = on(device, &rows, &store, Settings { again: true, ..settings() });
    let tuned = tune(&again, &problem(64));
    assert_eq!(tuned.edition, clean);
    assert!(tuned.note.is_some_and(|n| n.contains("the clean verdict that was kept stands: this one is contended")));
    assert_eq!(first.record(&problem(64)).unwrap().editions[0].verdict, clean.verdict);
}

#[test]
fn a_winner_that_is_beaten_side_by_side_is_replaced_under_any_conditions() {
    let store = memory();
    let wrong = [row("reference", 9e-3), row("lucky", 1e-3), row("best", 2e-3)];
    let clean = tune(&tuner(&wrong, &store, settings()), &problem(64)).edition;
    assert_eq!((clean.verdict.winner.variant.as_str(), clean.verdict.grade), ("lucky", Grade::Clean));
    let device = Fake::new();
    device.contended.store(true, Ordering::SeqCst);
    let so_it_is = [row("reference", 9e-3), row("lucky", 3e-3), row("best", 2e-3)];
    let again = tune(&on(device, &so_it_is, &store, Settings { again: true, ..settings() }), &problem(64));
    assert_eq!((again.edition.verdict.winner.variant.as_str(), again.note), ("best", None));
}

#[test]
fn a_search_that_the_budget_broke_off_goes_on_with_what_it_had_not_tried() {
    assert!(in_a_quiet_moment(|| std::panic::catch_unwind(break_off_and_go_on).is_ok()));
}

fn break_off_and_go_on() {
    let mut times: Vec<f64> = (0..120).map(|i| 5e-3 + 1e-3 * f64::from(i % 17)).collect();
    times[119] = 1e-3;
    let many = row("many", 1.0).configs(&times).real(800);
    let rows = [row("reference", 9e-3), many.clone()];
    let store = memory();
    let little = Settings { budget: Budget { seconds: 0.12, ..Budget::default() }, ..settings() };
    let first = tune(&tuner(&rows, &store, little), &problem(64)).edition;
    assert_eq!(first.verdict.grade, Grade::Capped);
    let tried = many.count.builds();
    assert!(tried < 100, "{tried} of 120");
    let tuned = tune(&tuner(&rows, &store, settings()), &problem(64));
    assert_eq!(tuned.edition.verdict.winner.to_string(), "many[i=119]");
    assert_eq!((tuned.edition.verdict.grade, tuned.edition.trials.len()), (Grade::Clean, 121));
    let again = many.count.builds() - tried;
    assert!(again <= 120 - tried + 24, "{again} were built again after {tried}");
    assert!(tuned.edition.skipped.is_empty(), "{:?}", tuned.edition.skipped);
}
