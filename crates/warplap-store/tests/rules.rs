//! What a store does on a good day, in a directory, in memory and on a backend of another crate alike; and F13, F16.

mod support;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use support::*;
use warplap_store::{Checked, Match, Merged, Store, StoreError};

fn each(test: impl Fn(Store)) {
    test(Store::memory());
    test(Store::new(Arc::new(book::Book::default())));
    let dir = temp();
    test(Store::directory(&dir.path().join("store")).unwrap());
}

#[test]
fn what_is_put_is_found_with_every_trial() {
    each(|store| {
        let put = edition(store.id(), 100, 7);
        assert_eq!(store.lookup(&key(1), &device(1)), Match::Miss);
        store.put(&key(1), &device(1), put.clone(), "matmul m=1").unwrap();
        let Match::Exact(result) = store.lookup(&key(1), &device(1)) else { panic!("a miss") };
        assert_eq!(result.editions, [put]);
        assert_eq!(result.problem, "matmul m=1");
        assert_eq!(store.read(&key(1), &device(1).slug()).unwrap(), *result);
        assert_eq!(store.lookup(&key(2), &device(1)), Match::Miss);
    });
}

#[test]
fn another_driver_is_near_and_another_device_is_foreign() {
    each(|store| {
        store.put(&key(1), &device(1), edition(store.id(), 100, 7), "").unwrap();
        let mut upgraded = device(1);
        upgraded.soft.insert("driver".into(), "2.0".into());
        assert!(matches!(store.lookup(&key(1), &upgraded), Match::Near(r) if winner(&r) == 7));
        let Match::Foreign(_, slug) = store.lookup(&key(1), &device(2)) else { panic!("not foreign") };
        assert_eq!(slug, device(1).slug());
        // After the upgrade's own tuning both are kept, and a downgrade finds the old one again.
        let mut second = edition(store.id(), 200, 8);
        second.soft = upgraded.soft.clone();
        store.put(&key(1), &upgraded, second, "").unwrap();
        assert!(matches!(store.lookup(&key(1), &upgraded), Match::Exact(_)));
        assert!(matches!(store.lookup(&key(1), &device(1)), Match::Exact(r) if r.editions.len() == 2));
    });
}

#[test]
fn an_imported_edition_never_beats_a_local_one() {
    each(|store| {
        let (key, device) = (key(1), device(1));
        assert_eq!(store.merge(record(&key, &device, edition("elsewhere", 900, 9))).unwrap(), Merged::Added);
        assert_eq!(store.merge(record(&key, &device, edition("elsewhere", 900, 9))).unwrap(), Merged::Unchanged);
        store.put(&key, &device, edition(store.id(), 100, 1), "").unwrap();
        // One that claims to come from here is no better.
        assert_eq!(store.merge(record(&key, &device, edition(store.id(), 999, 66))).unwrap(), Merged::Unchanged);
        let Match::Exact(result) = store.lookup(&key, &device) else { panic!("a miss") };
        let current = result.current(&device, store.id()).unwrap();
        assert_eq!(current.verdict.winner.config.int("mc"), Some(1));
        assert_eq!(result.editions.len(), 2);
    });
}

#[test]
fn a_missed_key_is_remembered_once_and_forgotten_when_it_is_tuned() {
    each(|store| {
        store.miss(&key(2), &device(1), "matmul m=2");
        store.miss(&key(2), &device(1), "matmul m=2");
        store.miss(&key(1), &device(1), "matmul m=1");
        let misses = store.misses();
        assert_eq!(misses.len(), 2);
        assert!(misses.iter().any(|m| m.key() == key(2) && m.problem == "matmul m=2"));
        assert_eq!(misses[0].device_slug(), device(1).slug());
        store.put(&key(2), &device(1), edition(store.id(), 1, 1), "").unwrap();
        assert_eq!(store.misses().len(), 1);
    });
}

#[test]
fn notes_entries_and_removal_work() {
    each(|store| {
        let slug = device(1).slug();
        assert_eq!(store.note(&slug, "ceilings"), None);
        store.put_note(&slug, "ceilings", &serde_json::json!({"flops": 1.5e12})).unwrap();
        store.put_note(&slug, "ceilings", &serde_json::json!({"flops": 2.5e12})).unwrap();
        assert_eq!(store.note(&slug, "ceilings").unwrap()["flops"], 2.5e12);
        assert!(store.put_note("../x", "ceilings", &serde_json::Value::Null).is_err());
        assert!(store.put_note(&slug, "../../x", &serde_json::Value::Null).is_err());
        for n in 0..5 {
            store.put(&key(n), &device(1), edition(store.id(), 1, 1), "").unwrap();
        }
        let entries = store.entries();
        assert_eq!(entries.len(), 5);
        assert!(entries.is_sorted() && entries.iter().all(|e| e.bytes > 100 && e.op == "matmul"));
        assert!(matches!(store.check(&entries[0]), Checked::Whole(_)));
        assert!(store.remove(&entries[0]).unwrap());
        assert!(!store.remove(&entries[0]).unwrap());
        assert_eq!(store.check(&entries[0]), Checked::Gone);
        assert_eq!(store.entries().len(), 4);
    });
}

#[test]
fn one_tunes_and_the_others_wait_or_give_up() {
    each(|store| {
        let flight = store.lock(&key(1), &device(1));
        assert!(store.try_lock(&key(1), &device(1), Duration::from_millis(20)).is_none());
        assert!(store.try_lock(&key(1), &device(2), Duration::ZERO).is_some());
        assert!(store.try_lock(&key(2), &device(1), Duration::ZERO).is_some());
        // The holder itself can put.
        store.put(&key(1), &device(1), edition(store.id(), 1, 1), "").unwrap();
        drop(flight);
        assert!(store.try_lock(&key(1), &device(1), Duration::ZERO).is_some());
    });
}

#[test]
fn what_could_not_be_read_back_is_refused_while_the_caller_still_has_it() {
    each(|store| {
        let mut odd = edition(store.id(), 1, 1);
        odd.seconds = f64::NAN;
        assert!(matches!(store.put(&key(1), &device(1), odd, ""), Err(StoreError::Invalid(_))));
        let escaping = warplap_store::records::key::Key::new("../../etc", "x".into());
        assert!(store.put(&escaping, &device(1), edition(store.id(), 1, 1), "").is_err());
        assert_eq!(store.lookup(&escaping, &device(1)), Match::Miss);
        let _flight = store.lock(&escaping, &device(1));
        store.miss(&escaping, &device(1), "");
        assert!(store.entries().is_empty() && store.misses().is_empty());
    });
}

#[test]
fn a_clock_set_back_does_not_hide_the_newest_tuning() {
    each(|store| {
        for n in 0..12 {
            let mut put = edition(store.id(), 1_000_000 - n as u64, n);
            put.soft.insert("driver".into(), format!("{n}"));
            store.put(&key(1), &device(1), put, "").unwrap();
            let mut device = device(1);
            device.soft.insert("driver".into(), format!("{n}"));
            assert!(matches!(store.lookup(&key(1), &device), Match::Exact(_)), "tuning {n}");
        }
    });
}

#[test]
fn f13_a_newer_record_is_never_touched_and_an_older_one_is_set_aside() {
    let dir = temp();
    let root = dir.path().join("store");
    let store = Store::directory(&root).unwrap();
    store.put(&key(1), &device(1), edition(store.id(), 1, 1), "").unwrap();
    let path = file_of(&root, &key(1), &device(1));
    let body = |schema: &str| {
        let text = std::fs::read_to_string(&path).unwrap();
        let body = text.split_once('\n').unwrap().1.strip_suffix("\n}\n").unwrap().to_string();
        body.replacen("\"schema\": 1", schema, 1)
    };
    let sealed = |body: &str| {
        let sum = blake3::hash(body.as_bytes()).to_hex();
        format!("{{\"checksum\": \"blake3:{sum}\", \"record\":\n{body}\n}}\n")
    };
    let old = sealed(&body("\"schema\": 0"));
    // A newer form with our fields, and one with none of them.
    for newer in [sealed(&body("\"schema\": 2")), sealed("{\"schema\": 9, \"everything\": \"else\"}")] {
        std::fs::write(&path, &newer).unwrap();
        assert_eq!(store.lookup(&key(1), &device(1)), Match::Miss);
        let put = store.put(&key(1), &device(1), edition(store.id(), 2, 2), "");
        assert!(matches!(put, Err(StoreError::NewerSchema { .. })), "{put:?}");
        let merged = store.merge(record(&key(1), &device(1), edition("x", 2, 2)));
        assert!(matches!(merged, Err(StoreError::NewerSchema { .. })));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), newer);
        assert!(store.set_aside().is_empty());
    }
    std::fs::write(&path, old).unwrap();
    assert_eq!(store.lookup(&key(1), &device(1)), Match::Miss);
    assert_eq!(store.set_aside().len(), 1);
    store.put(&key(1), &device(1), edition(store.id(), 2, 2), "").unwrap();
    assert!(matches!(store.lookup(&key(1), &device(1)), Match::Exact(_)));
}

#[test]
fn f16_a_million_distinct_keys_have_distinct_hashes() {
    let count = if long() { 10_000_000 } else { 1_000_000 };
    let mut seen = HashSet::with_capacity(count);
    for n in 0..count as u64 {
        assert!(seen.insert(u128::from_str_radix(&key(n).hash(), 16).unwrap()), "key {n}");
    }
}
