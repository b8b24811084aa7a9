//! What the store gives back is data: failing disks, poisoned, imported, foreign and damaged records.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};

use warplap_core::candidate::{Candidate, SourceHash};
use warplap_core::engine::How;
use warplap_core::record::{Record, TuningRun};
use warplap_core::settings::Mode;
use warplap_core::space::Config;
use warplap_core::store::files::Files;
use warplap_core::store::{Match, Merged, Store};
use warplap_core::variant::Fit;

use crate::fake::{Fake, Row, problem, row};
use crate::support::*;

fn rows() -> [Row; 4] {
    [row("reference", 9e-3).fit(Fit::LOW), row("first", 4e-3), row("a", 1e-3).configs(&[2e-3, 1e-3]), row("b", 3e-3)]
}

/// The record of a key as another store wrote it.
fn record() -> Record {
    let tuner = tuner(&rows(), &memory(), settings());
    tune(&tuner, &problem(64));
    tuner.record(&problem(64)).unwrap()
}

#[test]
fn a_store_that_cannot_keep_the_record_costs_a_warning_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(Disk::default());
    let store = Store::directory_on(&dir.path().join("s"), Files::with_hook(disk.clone())).unwrap();
    disk.full.store(true, Ordering::SeqCst);
    let rows = rows();
    let tuner = tuner(&rows, &store, settings());
    let start = Barrier::new(16);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                start.wait();
                assert!(launch(&tuner, &problem(64)).unwrap());
            });
        }
    });
    assert_eq!(rows[3].count.builds(), 1, "raced once, kept or not");
    let tuned = tune(&tuner, &problem(32));
    assert!(tuned.warning.as_ref().is_some_and(|w| w.contains("was not kept")), "{:?}", tuned.warning);
    assert_eq!(tuned.edition.verdict.winner.to_string(), "a[i=1]");
    let laps = tuner.device().counts()[1];
    assert!(tune(&tuner, &problem(32)).from_store);
    assert_eq!(tuner.device().counts()[1], laps);
    // The disk has room again: the next tuning is kept.
    disk.full.store(false, Ordering::SeqCst);
    assert!(tune(&tuner, &problem(16)).warning.is_none());
    assert_eq!(store.entries().len(), 1);
}

#[test]
fn nothing_is_built_from_a_poisoned_record() {
    let poisons: Vec<fn(&mut Candidate)> = vec![
        |c| c.variant = "unknown".into(),
        |c| c.variant = String::new(),
        |c| c.variant = "../../../etc/passwd".into(),
        |c| c.variant = "x".repeat(1 << 20),
        |c| c.config = Config::new(),
        |c| c.config = Config::new().with("i", 2),
        |c| c.config = Config::new().with("i", -1),
        |c| c.config = Config::new().with("i", i64::MAX),
        |c| c.config = Config::new().with("i", i64::MIN),
        |c| c.config = Config::new().with("i", "1"),
        |c| c.config = Config::new().with("i", true),
        |c| c.config = Config::new().with("i", 1).with("j", 1),
        |c| c.config = Config::new().with("I", 1),
    ];
    let sound = record();
    for (n, poison) in poisons.iter().enumerate() {
        for local in [true, false] {
            let store = memory();
            let mut record = sound.clone();
            let edition = &mut record.editions[0];
            let won = edition.trials.iter_mut().find(|t| t.candidate == edition.verdict.winner).unwrap();
            poison(&mut won.candidate);
            edition.verdict.winner = won.candidate.clone();
            edition.origin = if local { store.id().to_string() } else { "0123456789abcdef".into() };
            // Names that cannot be names are not even taken in.
            let odd = n < 4 && n > 0;
            assert_eq!(store.merge(record).is_err(), odd, "poison {n}");
            let now = rows();
            let replay = tuner(&now, &store, mode(Mode::Replay));
            assert!(launch(&replay, &problem(64)).unwrap());
            let (tuner, chosen) = (tuner(&now, &store, settings()), replay.choose(&problem(64)).unwrap().candidate);
            if n == 0 {
                // As a program with more candidates writes it: the best of those that are here answers.
                assert!(now.iter().any(|row| row.id == chosen.variant), "{chosen}");
                let winner = tune(&tuner, &problem(64)).edition.verdict.winner;
                assert!(now.iter().any(|row| row.id == winner.variant) && launch(&tuner, &problem(64)).unwrap());
                continue;
            }
            assert_eq!(chosen.variant, "first", "poison {n}");
            assert_eq!(now[2].count.builds(), 0, "poison {n}");
            let tuned = tune(&tuner, &problem(64));
            assert_eq!((tuned.from_store, tuned.edition.verdict.winner.to_string()), (false, "a[i=1]".into()));
            assert!(launch(&tuner, &problem(64)).unwrap());
        }
    }
}

#[test]
fn poison_beside_the_winner_is_never_acted_upon() {
    let poisons: Vec<fn(&mut TuningRun)> = vec![
        |e| e.verdict.winner.source = SourceHash("zz".repeat(1000)),
        |e| e.verdict.median_us = -1e308,
        |e| e.verdict.runner_up = Some(e.verdict.winner.clone()),
        |e| e.trials.clear(),
        |e| e.skipped.clear(),
        |e| e.trials.iter_mut().for_each(|t| t.candidate.config = Config::new().with("i", i64::MAX)),
        |e| e.floor_us = Some(-1.0),
        |e| e.seconds = 1e308,
        |e| e.tuned_at = 253_402_300_799,
    ];
    let sound = record();
    for (n, poison) in poisons.iter().enumerate() {
        let store = memory();
        let mut record = sound.clone();
        poison(&mut record.editions[0]);
        record.editions[0].origin = store.id().to_string();
        let _ = store.merge(record);
        let tuner = tuner(&rows(), &store, settings());
        assert!(launch(&tuner, &problem(64)).unwrap(), "poison {n}");
        assert_eq!(tune(&tuner, &problem(64)).edition.verdict.winner.to_string(), "a[i=1]", "poison {n}");
    }
}

#[test]
fn an_imported_winner_never_beats_a_local_one() {
    let store = memory();
    let p = problem(64);
    let local = tuner(&rows(), &store, settings());
    tune(&local, &p);
    let mut imported = record();
    imported.editions[0].tuned_at += 1_000_000;
    let b = trial(&imported.editions[0], "b").candidate.clone();
    imported.editions[0].verdict.winner = b;
    assert_eq!(store.merge(imported.clone()).unwrap(), Merged::Joined);
    for m in [Mode::Replay, Mode::Record, Mode::Tune] {
        let chosen = tuner(&rows(), &store, mode(m)).choose(&p).unwrap();
        assert_eq!((chosen.candidate.variant.as_str(), chosen.how), ("a", How::Stored), "{m}");
    }
    // One that claims to come from here does not replace what is here either.
    imported.editions[0].origin = store.id().into();
    store.merge(imported.clone()).unwrap();
    assert_eq!(tuner(&rows(), &store, mode(Mode::Replay)).choose(&p).unwrap().candidate.variant, "a");
    // Where there is no local one, it answers.
    let empty = memory();
    imported.editions[0].origin = "0123456789abcdef".into();
    empty.merge(imported).unwrap();
    let tuner = tuner(&rows(), &empty, settings());
    assert_eq!(tuner.choose(&p).unwrap().candidate.variant, "b");
    assert_eq!(tuner.device().counts()[1], 0);
}

#[test]
fn another_devices_record_answers_a_replay_and_no_race() {
    let store = memory();
    let p = problem(64);
    tune(&on(Fake::named("Other chip", "1.0"), &rows(), &store, settings()), &p);
    let replay = tuner(&rows(), &store, mode(Mode::Replay));
    let chosen = replay.choose(&p).unwrap();
    assert_eq!(chosen.candidate.variant, "a");
    assert!(matches!(&chosen.how, How::Foreign(slug) if slug.starts_with("other-chip")), "{:?}", chosen.how);
    tuner(&rows(), &store, mode(Mode::Record)).choose(&p).unwrap();
    assert_eq!(store.misses().len(), 1, "foreign is a miss here");
    // On this chip `a` is no better than `b` by a per cent: the foreign winner has no place to defend.
    let here = [row("reference", 9e-3).fit(Fit::LOW), row("a", 1.0).configs(&[2e-3, 1.06e-3]), row("b", 1e-3)];
    let tuned = tune(&tuner(&here, &store, settings()), &p);
    assert_eq!((tuned.from_store, tuned.edition.verdict.winner.variant.as_str()), (false, "b"));
    let there = Fake::named("Other chip", "1.0");
    let key = replay.key(&p);
    let Match::Exact(record) = store.lookup(&key, warplap_core::device::Device::fingerprint(&there)) else { panic!() };
    assert_eq!(record.editions[0].verdict.winner.variant, "a", "the other's record is untouched");
}

#[test]
fn a_damaged_record_is_raced_again_and_only_that_one() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("s");
    let open = || Store::directory(&root).unwrap();
    let store = open();
    let first = tuner(&rows(), &store, settings());
    let hurt = tune(&first, &problem(64)).key;
    tune(&first, &problem(32));
    let entry = store.entries().into_iter().find(|e| e.hash == hurt.hash()).unwrap();
    let whole = std::fs::read(&entry.path).unwrap();
    let cut = whole.len() / 2;
    let mut flipped = whole.clone();
    flipped[cut] ^= 1;
    for damage in [&whole[..cut], &flipped, b"", b"{}", &whole[1..]] {
        std::fs::write(&entry.path, damage).unwrap();
        let now = rows();
        let tuner = tuner(&now, &open(), settings());
        assert_eq!(tuner.choose(&problem(32)).unwrap().how, How::Stored);
        assert_eq!(tuner.device().counts()[1], 0, "the other key is not touched");
        let chosen = tuner.choose(&problem(64)).unwrap();
        assert_eq!((chosen.candidate.to_string(), chosen.how), ("a[i=1]".to_string(), How::Raced));
        assert_eq!(now[3].count.builds(), 1);
    }
    assert_eq!(store.set_aside().len(), 5);
    // In replay the damaged key is a miss, not an error.
    std::fs::write(&entry.path, b"junk").unwrap();
    let replay = tuner(&rows(), &open(), mode(Mode::Replay));
    assert!(launch(&replay, &problem(64)).unwrap());
    assert!(matches!(replay.choose(&problem(64)).unwrap().how, How::Default(_)));
}
