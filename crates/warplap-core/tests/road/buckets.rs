//! Sizes that share a key: what is raced for them, and what each of them runs.

use warplap_core::bucket::Bucket;
use warplap_core::engine::{AnyTuner, How, Tuned};
use warplap_core::op::Op;
use warplap_core::rejection::Rejection;
use warplap_core::sandbox::Passed;
use warplap_core::settings::{Mode, Settings};

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
    for size in [33, 91, 128] {
        assert!(tuner.knows_key(&sized(size)) && launch(&tuner, &sized(size)).unwrap(), "{size}");
        let built = rows[1].count.builds();
        assert!(launch(&tuner, &sized(size)).unwrap() && tune(&tuner, &sized(size)).from_store, "{size}");
        assert_eq!(rows[1].count.builds(), built, "its kernel is there");
    }
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
    let message = |len: u64| AnyTuner::find(&tuner, &Scale::text(&problem(len))).unwrap().matched;
    assert!(
        message(40).ends_with("the race was at n=64; at this size tiles[i=1] won a short race of 3"),
        "{}",
        message(40)
    );
    assert!(!message(64).contains("the race was at"), "{}", message(64));
    // One that was measured and is close goes first.
    let rows = [&rows[..], &[row("close", 1.1e-4)]].concat();
    let tuner = support::tuner(&rows, &memory(), changing());
    assert_eq!(of(&tune(&tuner, &problem(64))), Some(3));
    assert_eq!(tuner.choose(&problem(40)).unwrap().candidate.variant, "close");
}

/// A winner that is behind the library above 80.
fn by_halves() -> [crate::fake::Row; 3] {
    [row("reference", 9e-3), row("library", 2e-3).library(), row("tiles", 1e-3).above(80, 4e-3)]
}

#[test]
fn a_size_that_was_not_raced_races_a_few_and_the_library_among_them() {
    let (rows, store) = (by_halves(), memory());
    let tuner = tuner(&rows, &store, changing());
    let message = |len: u64| AnyTuner::find(&tuner, &Scale::text(&problem(len))).unwrap().matched;
    let who = |tuner: &support::T, len: u64| tuner.choose(&problem(len)).unwrap().candidate.variant;
    assert_eq!(tune(&tuner, &problem(64)).edition.verdict.winner.variant, "tiles");
    assert!(message(100).contains("the race was at n=64; this size was not measured yet"), "{}", message(100));
    assert_eq!(who(&tuner, 100), "library");
    assert!(message(100).contains("at this size library[i=0] won a short race of 3"), "{}", message(100));
    let [_, laps, _] = tuner.device().counts();
    // What lies close to a size that was seen, and between two that agree, needs none.
    assert_eq!([99, 103, 65].map(|len| who(&tuner, len)), ["library", "library", "tiles"]);
    assert_eq!(tuner.device().counts()[1], laps);
    assert_eq!(who(&tuner, 50), "tiles");
    let [_, laps, _] = tuner.device().counts();
    assert_eq!(who(&tuner, 57), "tiles");
    assert_eq!(tuner.device().counts()[1], laps);
    assert!(message(57).contains("sizes around this one agree on tiles[i=0]"), "{}", message(57));
    // Whoever only replays goes by what is there, and measures nothing.
    let replay = support::tuner(&rows, &store, Settings { mode: Mode::Replay, ..changing() });
    assert_eq!([100, 57, 64, 121, 34].map(|len| who(&replay, len)), ["library", "tiles", "tiles", "library", "tiles"]);
    assert_eq!(replay.device().counts()[1], 0);
    // The race of the key is what it was.
    assert_eq!(tuner.record(&problem(100)).unwrap().editions[0].verdict.winner.variant, "tiles");
}

#[test]
fn of_all_sizes_of_a_key_few_are_raced_and_next_to_none_is_served_by_the_slower_one() {
    let (rows, store) = (by_halves(), memory());
    let tuner = tuner(&rows, &store, changing());
    tune(&tuner, &problem(64));
    let mut order: Vec<u64> = (33..=128).collect();
    fastrand::Rng::with_seed(3).shuffle(&mut order);
    let wrong = |len: &&u64| (tuner.choose(&problem(**len)).unwrap().candidate.variant == "library") != (**len > 80);
    let wrong = order.iter().filter(wrong).collect::<Vec<_>>();
    assert!(wrong.iter().all(|len| (78..=83).contains(*len)), "{wrong:?}");
    let sizes = tuner.record(&problem(64)).unwrap().editions[0].sizes.len();
    assert!(sizes <= 16, "{sizes}");
}

#[test]
fn while_nothing_may_be_measured_the_library_answers_for_now() {
    let (rows, store, fake) = (by_halves(), memory(), Fake::new());
    tune(&tuner(&rows, &store, changing()), &problem(64));
    *fake.busy.lock().unwrap() = Some("a stream is being captured".into());
    let tuner = on(fake, &rows, &store, changing());
    let who = |len: u64| tuner.choose(&problem(len)).unwrap().candidate.variant;
    assert!(launch(&tuner, &problem(50)).unwrap());
    assert_eq!([50, 64, 65].map(who), ["library", "tiles", "tiles"]);
    *tuner.device().busy.lock().unwrap() = None;
    let tiles = rows[2].count.launches();
    assert!(launch(&tuner, &problem(50)).unwrap() && rows[2].count.launches() > tiles);
    assert_eq!(who(50), "tiles");
}

#[test]
fn what_others_saw_of_a_size_is_not_believed_before_it_passed_here() {
    let rows = [row("reference", 9e-3), row("wide", 2e-3), row("tiles", 1e-3).above(80, 4e-3)];
    let (theirs, ours, fake) = (memory(), memory(), Fake::new());
    let there = tuner(&rows, &theirs, changing());
    tune(&there, &problem(64));
    assert_eq!(there.choose(&problem(100)).unwrap().candidate.variant, "wide");
    let mut record = there.record(&problem(64)).unwrap();
    assert_eq!(record.editions[0].sizes.len(), 1);
    record.editions[0].origin = "elsewhere".into();
    ours.merge(record).unwrap();
    let here = on(fake, &rows, &ours, changing());
    assert_eq!(here.choose(&problem(64)).unwrap().candidate.variant, "tiles");
    *here.device().busy.lock().unwrap() = Some("a stream is being captured".into());
    assert_ne!(here.choose(&problem(100)).unwrap().candidate.variant, "wide", "it did not pass here");
    *here.device().busy.lock().unwrap() = None;
    assert_eq!(here.choose(&problem(100)).unwrap().candidate.variant, "wide");
}

#[test]
fn in_the_background_the_nearest_size_answers_until_its_own_race_is_over() {
    let (rows, store) = (by_halves(), memory());
    tune(&tuner(&rows, &store, changing()), &problem(64));
    let tuner = support::tuner(&rows, &store, Settings { mode: Mode::Background, ..changing() });
    assert_eq!(tuner.choose(&problem(100)).unwrap().candidate.variant, "tiles");
    let decided = || tuner.choose(&problem(100)).unwrap().candidate.variant == "library";
    let waited = (0..500).any(|_| decided() || (std::thread::sleep(std::time::Duration::from_millis(20)), false).1);
    assert!(waited);
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
