//! Mode background: nobody waits, and the winner takes over when it is decided.

use std::time::{Duration, Instant};

use warplap_core::background;
use warplap_core::engine::How;
use warplap_core::settings::{Mode, Settings};

use crate::fake::{Fake, problem, row};
use crate::support::{self, *};

fn beside() -> Settings {
    mode(Mode::Background)
}

/// Waits until something is so.
fn until(what: impl Fn() -> bool) {
    let started = Instant::now();
    while !what() {
        assert!(started.elapsed() < Duration::from_secs(20), "it never was");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn the_first_choice_answers_at_once_and_the_winner_takes_over() {
    let rows = [row("reference", 9e-3).real(2000), row("fast", 1e-3).real(2000)];
    let tuner = tuner(&rows, &memory(), beside());
    let started = Instant::now();
    assert!(launch(&tuner, &problem(64)).unwrap());
    assert!(started.elapsed() < Duration::from_millis(500), "nobody waits for a race");
    until(|| tuner.record(&problem(64)).is_some() && background::is_idle());
    let [slow, fast] = [&rows[0], &rows[1]].map(|r| r.count.launches());
    let built = rows[1].count.builds();
    for _ in 0..5 {
        assert!(launch(&tuner, &problem(64)).unwrap());
    }
    assert_eq!([&rows[0], &rows[1]].map(|r| r.count.launches()), [slow, fast + 5]);
    assert_eq!(rows[1].count.builds(), built, "no call waits until the winner's kernel is built");
    assert_eq!(tuner.choose(&problem(64)).unwrap().how, How::Raced);
}

#[test]
fn what_the_store_knows_answers_and_is_not_measured_again() {
    let rows = [row("reference", 9e-3), row("fast", 1e-3)];
    let store = memory();
    tune(&support::tuner(&rows, &store, settings()), &problem(64));
    let tuner = tuner(&rows, &store, beside());
    let chosen = tuner.choose(&problem(64)).unwrap();
    assert_eq!((&*chosen.candidate.variant, chosen.how), ("fast", How::Stored));
    let launches = rows[0].count.launches();
    until(background::is_idle);
    assert_eq!(rows[0].count.launches(), launches);
}

#[test]
fn nothing_is_sent_to_the_background_while_a_queue_is_captured() {
    let rows = [row("reference", 9e-3), row("fast", 1e-3)];
    let device = Fake::new();
    *device.busy.lock().unwrap() = Some("a graph is captured".into());
    let tuner = on(device, &rows, &memory(), beside());
    assert!(matches!(tuner.choose(&problem(64)).unwrap().how, How::Default(_)));
    assert_eq!(rows[1].count.builds(), 0);
    *tuner.device().busy.lock().unwrap() = None;
    assert!(launch(&tuner, &problem(64)).unwrap(), "what was chosen meanwhile does not last");
    until(|| tuner.record(&problem(64)).is_some());
}
