//! A budget holds, whatever takes long. Launches sleep here, so that the machine's speed does not matter.

use std::sync::atomic::Ordering;
use std::time::Instant;

use warplap_core::settings::{Budget, Settings};

use crate::fake::{Act, Fake, Row, ScaleProblem, problem, row};
use crate::support::*;

const SECONDS: f64 = 0.6;

/// What scheduling may add on a busy machine.
const NOISE: f64 = 0.15;

fn hurried() -> Settings {
    Settings { budget: Budget { seconds: SECONDS, ..Budget::default() }, ..settings() }
}

/// Seconds it takes to tune, and how many were measured.
fn tuned_in(tuner: &T, p: &ScaleProblem) -> (f64, usize) {
    let started = Instant::now();
    let tuned = tune(tuner, p);
    (started.elapsed().as_secs_f64(), tuned.edition.trials.iter().filter(|t| t.is_right()).count())
}

#[test]
fn slow_launches_leave_time_for_the_race_and_the_last_proof() {
    let rows: Vec<Row> = (0..20).map(|i| row(&format!("v{i}"), 1e-3).real(40_000)).collect();
    assert!(in_a_quiet_moment(|| {
        let (seconds, right) = tuned_in(&tuner(&rows, &memory(), hurried()), &problem(64));
        right >= 2 && seconds < SECONDS * 1.2 + NOISE
    }));
}

#[test]
fn nothing_is_compiled_that_would_take_until_after_the_end() {
    let slow = |i: u32| row(&format!("v{i}"), 1e-3).act(Act::CompilesSlowly(350));
    let rows: Vec<Row> = [row("reference", 2e-3)].into_iter().chain((0..12).map(slow)).collect();
    assert!(in_a_quiet_moment(|| {
        let device = Fake::new();
        device.builders.store(2, Ordering::SeqCst);
        let (seconds, right) = tuned_in(&on(device, &rows, &memory(), hurried()), &problem(64));
        right >= 2 && seconds < SECONDS * 1.2 + NOISE
    }));
}

#[test]
fn where_time_is_up_before_anybody_is_compiled_somebody_still_is() {
    let rows = [row("reference", 2e-3), row("broken", 1e-3).act(Act::CompileFails), row("other", 1e-3)];
    let device = Fake::new();
    device.builders.store(2, Ordering::SeqCst);
    let budget = Budget { seconds: 1e-6, ..Budget::default() };
    let (_, right) = tuned_in(&on(device, &rows, &memory(), Settings { budget, ..settings() }), &problem(64));
    assert!(right >= 1, "nobody was measured");
}

#[test]
fn where_time_is_up_before_those_who_are_waited_for_are_compiled_the_race_still_ends() {
    // More than are asked for at once, so that some are compiled because they are likely to be wanted.
    let slow = |i: u32| row(&format!("v{i}"), 1e-3).act(Act::CompilesSlowly(60));
    let rows: Vec<Row> = [row("reference", 2e-3)].into_iter().chain((0..80).map(slow)).collect();
    let (say, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let device = Fake::new();
        device.builders.store(16, Ordering::SeqCst);
        let budget = Budget { seconds: 1e-6, ..Budget::default() };
        let _ = say.send(tuned_in(&on(device, &rows, &memory(), Settings { budget, ..settings() }), &problem(64)).1);
    });
    let right = heard.recv_timeout(std::time::Duration::from_secs(60)).expect("the race never ends");
    assert!(right >= 1, "nobody was measured");
}

#[test]
fn a_library_that_opens_slowly_has_a_turn_before_somebody_who_is_ready_wins() {
    let rows = [
        row("reference", 2e-3).real(20_000),
        row("ready", 2e-3).real(20_000),
        row("library", 1e-3).library().act(Act::CompilesSlowly((SECONDS * 700.0) as u64)),
    ];
    let device = Fake::new();
    device.builders.store(2, Ordering::SeqCst);
    let tuned = tune(&on(device, &rows, &memory(), hurried()), &problem(64));
    assert_ne!(fate(&tuned.edition, "ready"), "nothing");
    assert_eq!(tuned.edition.verdict.winner.variant, "library");
}

#[test]
fn a_library_that_is_slow_at_first_leaves_others_their_turn() {
    let rows = [
        row("reference", 9e-3),
        row("library", 2e-3).library().act(Act::OpensSlowly((SECONDS * 650.0) as u64)),
        row("ours", 1e-3).real(1_000),
    ];
    assert!(in_a_quiet_moment(|| {
        let tuned = tune(&tuner(&rows, &memory(), hurried()), &problem(64));
        tuned.edition.verdict.winner.variant == "ours"
    }));
}
