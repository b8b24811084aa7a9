//! Hits, misses and modes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use warplap_core::bucket::Bucket;
use warplap_core::dtype::DType;
use warplap_core::engine::{How, Tuned};
use warplap_core::settings::{Budget, Mode, Settings};
use warplap_core::store::Store;
use warplap_core::store::files::Files;
use warplap_core::variant::Fit;

use crate::fake::{Fake, Meter, Row, ScaleProblem, args, problem, row};
use crate::support::*;

fn rows() -> Vec<Row> {
    vec![row("reference", 5e-3).fit(Fit::LOW), row("slow", 2e-3), row("fast", 1e-3), row("mid", 1.5e-3)]
}

#[test]
fn a_miss_races_and_a_hit_measures_nothing() {
    let (store, rows) = (memory(), rows());
    let tuner = tuner(&rows, &store, settings());
    let p = problem(100);
    assert!(launch(&tuner, &p).unwrap());
    let raced = tuner.device().counts();
    assert!(raced[1] > 0, "a miss races");
    let builds: Vec<u64> = rows.iter().map(|r| r.count.builds()).collect();
    for n in 1..=50 {
        assert!(launch(&tuner, &p).unwrap());
        let [_, laps, uploads] = tuner.device().counts();
        assert_eq!([laps, uploads], raced[1..], "hit {n}");
    }
    assert_eq!(builds, rows.iter().map(|r| r.count.builds()).collect::<Vec<_>>(), "a hit builds nothing");
    assert_eq!(rows[0].count.builds(), 0, "a low priority was not needed");
    let chosen = tuner.choose(&p).unwrap();
    assert_eq!((chosen.candidate.variant.as_str(), chosen.how), ("fast", How::Raced));
}

#[test]
fn a_new_process_finds_the_winner_and_measures_nothing() {
    let store = memory();
    tune(&tuner(&rows(), &store, settings()), &problem(100));
    let again = rows();
    let second = tuner(&again, &store, settings());
    let chosen = second.choose(&problem(100)).unwrap();
    assert_eq!((chosen.candidate.variant.as_str(), chosen.how), ("fast", How::Stored));
    assert_eq!(second.device().counts(), [0, 0, 0]);
    assert_eq!(again.iter().map(|r| r.count.builds()).collect::<Vec<_>>(), [0, 0, 1, 0]);
    assert!(tune(&second, &problem(100)).from_store);
}

#[test]
fn replay_never_measures_and_builds_nothing_but_the_answer() {
    let store = memory();
    tune(&tuner(&rows(), &store, settings()), &problem(100));
    let again = rows();
    let replay = tuner(&again, &store, mode(Mode::Replay));
    assert!(launch(&replay, &problem(100)).unwrap());
    assert_eq!(again.iter().map(|r| r.count.builds()).collect::<Vec<_>>(), [0, 0, 1, 0]);
    // A key nobody knows: the first choice by priority, in the order of the list.
    let chosen = replay.choose(&problem(7)).unwrap();
    assert_eq!(chosen.candidate.variant, "slow");
    assert!(matches!(&chosen.how, How::Default(why) if why.contains("replay")), "{:?}", chosen.how);
    assert_eq!(again.iter().map(|r| r.count.builds()).collect::<Vec<_>>(), [0, 1, 1, 0]);
    assert_eq!(replay.device().counts(), [0, 0, 0]);
    assert!(store.misses().is_empty() && store.entries().len() == 1, "replay writes nothing");
}

#[test]
fn mode_off_touches_no_store() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(Disk::default());
    let store = Store::directory_on(&dir.path().join("s"), Files::with_hook(disk.clone())).unwrap();
    let opened = disk.steps.load(Ordering::SeqCst);
    let rows = [row("reference", 1e-3).fit(Fit::LOW), row("odd", 1e-3).multiple(2), row("other", 1e-3)];
    let tuner = tuner(&rows, &store, mode(Mode::Off));
    for n in [2, 3, 4] {
        assert!(launch(&tuner, &problem(n)).unwrap());
    }
    assert_eq!(disk.steps.load(Ordering::SeqCst), opened);
    assert_eq!(tuner.device().counts(), [0, 0, 0]);
}

#[test]
fn record_remembers_each_miss_once_and_tuning_later_forgets_it() {
    let store = memory();
    let recorder = tuner(&rows(), &store, mode(Mode::Record));
    for n in [10, 20, 10, 10] {
        assert!(launch(&recorder, &problem(n)).unwrap());
        assert!(launch(&recorder, &problem(n)).unwrap());
    }
    let missed: Vec<String> = store.misses().into_iter().map(|m| m.problem).collect();
    assert_eq!(missed.len(), 2);
    assert!(missed.contains(&"scale:n=10,step=1,dtype=f32".to_string()), "{missed:?}");
    assert_eq!(recorder.device().counts()[1], 0);
    tune(&tuner(&rows(), &store, settings()), &problem(10));
    assert_eq!(store.misses().len(), 1);
}

#[test]
fn a_prepared_kernel_does_no_lookup() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(Disk::default());
    let store = Store::directory_on(&dir.path().join("s"), Files::with_hook(disk.clone())).unwrap();
    let tuner = tuner(&rows(), &store, settings());
    let p = problem(64);
    let kernel = tuner.prepare(&p).unwrap();
    let (steps, counts) = (disk.steps.load(Ordering::SeqCst), tuner.device().counts());
    let (x, mut y) = (vec![1.0; 64], vec![f64::NAN; 64]);
    for _ in 0..10 {
        kernel.launch(&mut args(&p, &x, &mut y), &Meter::default()).unwrap();
    }
    assert!(y.iter().all(|y| *y == 3.0));
    assert_eq!((disk.steps.load(Ordering::SeqCst), tuner.device().counts()), (steps, counts));
}

#[test]
fn what_nobody_has_tried_is_not_chosen_where_candidates_must_pass_in_a_worker() {
    let first = |sandboxes: bool| {
        let fake = Fake::new();
        if sandboxes {
            *fake.worker.lock().unwrap() = Some(|request| panic!("{} is tried", request.candidate));
        }
        let tuner = on(fake, &rows(), &memory(), mode(Mode::Off));
        tuner.choose(&problem(64)).unwrap().candidate.variant
    };
    assert_ne!(first(false), "reference");
    assert_eq!(first(true), "reference");
}

#[test]
fn a_busy_device_is_not_measured_on_and_raced_as_soon_as_it_is_free() {
    let store = memory();
    let tuner = tuner(&rows(), &store, settings());
    *tuner.device().busy.lock().unwrap() = Some("a stream is being captured".into());
    let p = problem(100);
    assert!(launch(&tuner, &p).unwrap());
    let chosen = tuner.choose(&p).unwrap();
    assert!(matches!(&chosen.how, How::Default(why) if why.contains("captured")), "{:?}", chosen.how);
    let error = tuner.tune(&p, &warplap_core::progress::Silent).unwrap_err().to_string();
    assert!(error.contains("captured"), "{error}");
    assert_eq!(tuner.device().counts(), [0, 0, 0]);
    assert_eq!(store.misses().len(), 1);
    *tuner.device().busy.lock().unwrap() = None;
    assert!(launch(&tuner, &p).unwrap());
    assert!(tuner.device().counts()[1] > 0, "what was chosen while it was busy does not last");
    assert_eq!(tuner.choose(&p).unwrap().candidate.variant, "fast");
    assert!(store.misses().is_empty());
    // A stored winner needs no measuring: busy or not.
    *tuner.device().busy.lock().unwrap() = Some("a stream is being captured".into());
    let other = on(Fake::new(), &rows(), &store, settings());
    *other.device().busy.lock().unwrap() = Some("a stream is being captured".into());
    assert_eq!(other.choose(&p).unwrap().how, How::Stored);
}

#[test]
fn two_sizes_of_a_bucket_share_a_race_and_what_does_not_fit_falls_back_to_the_next_best_that_was_right() {
    let store = memory();
    let rows = [
        row("reference", 9e-3).fit(Fit::LOW),
        row("wrong", 1e-4).act(crate::fake::Act::OffBy(0.5)),
        row("even", 1e-3).multiple(2),
        row("any", 2e-3),
    ];
    let pow2 = Settings { bucket: Bucket::PowerOfTwo, ..settings() };
    let tuner = tuner(&rows, &store, pow2);
    assert_eq!(tuner.key(&problem(100)), tuner.key(&problem(127)));
    assert_ne!(tuner.key(&problem(100)), tuner.key(&problem(129)));
    assert!(launch(&tuner, &problem(100)).unwrap());
    assert_eq!(tuner.choose(&problem(100)).unwrap().candidate.variant, "even");
    let laps = tuner.device().counts()[1];
    assert!(launch(&tuner, &problem(127)).unwrap());
    let chosen = tuner.choose(&problem(127)).unwrap();
    assert_eq!(chosen.candidate.variant, "any", "never the first choice, which was wrong");
    assert!(matches!(&chosen.how, How::Default(why) if why.contains("even")), "{:?}", chosen.how);
    assert_eq!(tuner.device().counts()[1], laps, "one race for both");
    assert_eq!(store.entries().len(), 1);
}

#[test]
fn the_users_choice_of_another_winner_reaches_problems_that_are_ready() {
    let store = memory();
    let before = [row("reference", 9e-3).fit(Fit::LOW), row("old", 2e-3)];
    let p = problem(32);
    let first = tuner(&before, &store, settings());
    assert!(launch(&first, &p).unwrap());
    // Another process tunes again with a better variant in its catalog; this one is asked to tune again too.
    let again = Settings { again: true, ..settings() };
    let both = [before[0].clone(), before[1].clone(), row("new", 1e-3)];
    let tuner = tuner(&both, &store, again);
    assert_eq!(tune(&tuner, &p).edition.verdict.winner.variant, "new");
    let launches = both[2].count.launches();
    assert!(launch(&tuner, &p).unwrap());
    assert_eq!(both[2].count.launches(), launches + 1);
}

#[test]
fn a_new_size_is_begun_with_what_was_best_for_the_nearest_one() {
    let store = memory();
    // One config of four hundred is fast, and no neighbour of it says so.
    let fast = |at: usize| (0..400).map(|i| if i == at { 1e-4 } else { 1e-3 }).collect::<Vec<f64>>();
    let few = || Settings { budget: Budget { trials: 12, ..Budget::default() }, search: "random".into(), ..settings() };
    let rows = |at: usize| [row("reference", 9e-3), row("a", 1e-3).configs(&fast(at))];
    let best = |tuned: &Tuned| tuned.edition.verdict.winner.config.int("i");
    assert_ne!(best(&tune(&tuner(&rows(317), &store, few()), &problem(64))), Some(317), "twelve trials do not find it");
    let whole = Settings { search: "exhaustive".into(), ..settings() };
    assert_eq!(best(&tune(&tuner(&rows(317), &store, whole), &problem(4096))), Some(317));
    // Nearer to 4096 than to 64: what was found there is tried first.
    assert_eq!(best(&tune(&tuner(&rows(317), &store, few()), &problem(4000))), Some(317));
    let other = ScaleProblem { dtype: DType::F64, ..problem(4001) };
    assert_ne!(
        best(&tune(&tuner(&rows(317), &store, few()), &other)),
        Some(317),
        "another type is another kind of key"
    );
}
