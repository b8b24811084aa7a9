//! Sizes that share a key: what is raced for them, and what each of them runs.

use warplap_core::bucket::Bucket;
use warplap_core::op::Op;
use warplap_core::rejection::Rejection;
use warplap_core::sandbox::Passed;
use warplap_core::settings::{Mode, Settings};
use warplap_core::tuner::{AnyTuner, How, Tuned};

use crate::fake::{Fake, Scale, ScaleProblem, Worker, problem, row};
use crate::support::{self, *};

/// Sizes that change share keys, as they do unless somebody says otherwise.
fn changing() -> Settings {
    Settings::default()
}

#[test]
fn sizes_that_change_race_once_and_each_gets_a_kernel_of_its_own() {
    let rows = [row("reference", 9e-3), row("fast", 1e-3)];
    let tuner = tuner(&rows, &memory(), changing());
    let sized = |len: u64| ScaleProblem { n: len, ..problem(1) };
    assert!(!tune(&tuner, &sized(57)).from_store);
    let built = rows[1].count.builds();
    for size in [33, 91, 128] {
        assert!(tuner.knows_key(&sized(size)) && launch(&tuner, &sized(size)).unwrap(), "{size}");
        assert!(tune(&tuner, &sized(size)).from_store, "{size}");
    }
    assert_eq!(rows[1].count.builds(), built + 3, "one kernel each");
    for size in [32, 129] {
        assert!(!tuner.knows_key(&sized(size)) && !tune(&tuner, &sized(size)).from_store, "{size}");
    }
    let tuner = support::tuner(&rows, &memory(), Settings { bucket: Bucket::Exact, ..changing() });
    assert!(!tune(&tuner, &sized(57)).from_store && !tune(&tuner, &sized(91)).from_store);
}

#[test]
fn what_is_raced_for_a_bucket_is_the_size_that_was_asked_for() {
    let tuner = tuner(&[row("reference", 1e-3)], &memory(), changing());
    assert!(tune(&tuner, &problem(57)).problem.starts_with("scale:n=57,"));
    assert!(tuner.record(&problem(91)).unwrap().problem.starts_with("scale:n=57,"));
}

#[test]
fn a_size_that_the_winner_cannot_do_gets_the_next_best_and_no_race() {
    let rows = [row("reference", 9e-3), row("even", 1e-3).multiple(2), row("any", 1.1e-3)];
    let store = memory();
    let tuner = tuner(&rows, &store, changing());
    assert_eq!(tune(&tuner, &problem(64)).edition.verdict.winner.variant, "even");
    let chosen = tuner.choose(&problem(91)).unwrap();
    assert_eq!(chosen.candidate.variant, "any");
    // Nor does a process that has to read the store.
    let fresh = support::tuner(&rows, &store, changing());
    assert!(tune(&fresh, &problem(91)).from_store);
    assert_eq!(fresh.choose(&problem(91)).unwrap().candidate.variant, "any");
    assert!(launch(&fresh, &problem(91)).unwrap());
}

/// Winners whose settings hang on the size: at 64 there are 2 and 3, at 40 there are 0 and 1.
fn by_size(seconds: &[f64; 4]) -> [crate::fake::Row; 3] {
    [row("reference", 9e-3), row("library", 8e-3).library(), row("tiles", 1e-3).configs(seconds).each(16)]
}

#[test]
fn settings_that_a_size_does_not_have_are_carried_over_where_all_others_are_far_behind() {
    let (rows, store) = (by_size(&[4e-4, 3e-4, 2e-4, 1e-4]), memory());
    let tuner = tuner(&rows, &store, changing());
    let of = |tuner: &Tuned| tuner.edition.verdict.winner.config.int("i");
    assert_eq!(of(&tune(&tuner, &problem(64))), Some(3));
    let chosen = tuner.choose(&problem(40)).unwrap();
    assert_eq!((chosen.candidate.variant.as_str(), chosen.candidate.config.int("i")), ("tiles", Some(1)));
    assert!(launch(&tuner, &problem(40)).unwrap());
    let told = |len: u64| AnyTuner::find(&tuner, &Scale::text(&problem(len))).unwrap().matched;
    assert!(told(40).ends_with("and tiles[i=1] answers for this one"), "{}", told(40));
    assert!(!told(64).contains("another size"), "{}", told(64));
    // One that was measured and is close goes first.
    let rows = [&rows[..], &[row("close", 1.1e-4)]].concat();
    let tuner = support::tuner(&rows, &memory(), changing());
    assert_eq!(of(&tune(&tuner, &problem(64))), Some(3));
    assert_eq!(tuner.choose(&problem(40)).unwrap().candidate.variant, "close");
}

#[test]
fn a_size_that_the_winner_cannot_do_does_not_decide_for_those_it_can() {
    let (rows, store) = (by_size(&[4e-4, 3e-4, 2e-4, 1e-4]), memory());
    tune(&tuner(&rows, &store, changing()), &problem(64));
    for mode in [Mode::Replay, Mode::Record, Mode::Tune] {
        let fresh = support::tuner(&rows, &store, Settings { mode, ..changing() });
        let first = fresh.choose(&problem(40)).unwrap();
        assert_eq!((first.candidate.variant.as_str(), first.candidate.config.int("i")), ("tiles", Some(1)), "{mode}");
        let then = fresh.choose(&problem(64)).unwrap();
        assert_eq!((then.candidate.config.int("i"), then.how), (Some(3), How::Stored), "{mode}");
    }
}

#[test]
fn settings_that_are_carried_over_pass_in_a_worker_where_candidates_must() {
    let rows = by_size(&[4e-4, 3e-4, 2e-4, 1e-4]);
    let carried = |worker: Worker, busy: bool| {
        let (store, fake) = (memory(), Fake::new());
        tune(&tuner(&rows, &store, changing()), &problem(64));
        *fake.worker.lock().unwrap() = Some(worker);
        *fake.busy.lock().unwrap() = busy.then(|| "a stream is being captured".into());
        let fresh = on(fake, &rows, &store, Settings { mode: Mode::Replay, ..changing() });
        let chosen = fresh.choose(&problem(40)).unwrap().candidate;
        chosen.to_string() == "tiles[i=1]"
    };
    let passes: Worker = |request| {
        assert_eq!(request.candidate.to_string(), "tiles[i=1]", "who was raced needs no proof");
        Some(Ok(Passed { error: 0.25, seconds: 1e-3 }))
    };
    let crashes: Worker = |_| Some(Err(Rejection::Crashed { reason: "signal 11".into() }));
    assert!(carried(passes, false));
    // Where it takes its worker down, and beside a capture, one that was raced answers.
    assert!(!carried(crashes, false) && !carried(|_| panic!("it is tried"), true));
}
