//! The store on every backend: editions are kept, merged, moved and lost to damage as a map of records would have it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use warplap_store::bundle::Bundle;
use warplap_store::care::verify;
use warplap_store::records::fingerprint::Fingerprint;
use warplap_store::records::record::Record;
use warplap_store::{Change, Checked, Entry, Match, Merged, Place, ReadResult, Store};

use super::Made;
use super::support::{device, edition, key, record};

const KEYS: u64 = 3;
const DEVICES: u32 = 2;

/// One record's key and device.
type At = (u64, u32);

#[derive(Clone, Debug)]
enum Step {
    Lookup(At),
    /// After an update of the driver.
    LookupUpdated(At),
    /// Measured here at a second, with a number to tell it by.
    Put(At, u64, i64),
    /// Measured elsewhere, by one of two.
    Merge(At, u64, i64, bool),
    Remove(At),
    /// Bytes of the document change under the store.
    Damage(At),
    Miss(At),
    Note(u32, Option<i64>),
    List,
    /// Out into a bundle, and into another store: the same bytes come out there.
    Export,
    /// A bundle's records come in, one of each origin.
    Import(At, u64, i64),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at = || (0..KEYS, 0..DEVICES);
    let text = || (at(), 1..4u64, 0..4i64);
    let step = prop_oneof![
        2 => at().prop_map(Step::Lookup),
        1 => at().prop_map(Step::LookupUpdated),
        4 => text().prop_map(|(at, when, n)| Step::Put(at, when, n)),
        3 => (text(), any::<bool>()).prop_map(|((at, when, n), who)| Step::Merge(at, when, n, who)),
        1 => at().prop_map(Step::Remove),
        1 => at().prop_map(Step::Damage),
        1 => at().prop_map(Step::Miss),
        1 => (0..DEVICES, proptest::option::of(any::<i64>())).prop_map(|(device, n)| Step::Note(device, n)),
        1 => Just(Step::List),
        1 => Just(Step::Export),
        1 => text().prop_map(|(at, when, n)| Step::Import(at, when, n)),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..30)
}

fn from_elsewhere(who: bool) -> &'static str {
    if who { "aaaaaaaaaaaaaaaa" } else { "cccccccccccccccc" }
}

#[derive(Default)]
struct Model {
    records: BTreeMap<At, Record>,
    missed: BTreeSet<At>,
    notes: BTreeMap<u32, i64>,
}

impl Model {
    /// What a key answers on a device, as a word, and the records it may answer with.
    fn answer(&self, (n, chip): At, device: &Fingerprint) -> (&'static str, Vec<&Record>) {
        if let Some(own) = self.records.get(&(n, chip)) {
            let exact = own.editions.iter().any(|e| e.soft == device.soft);
            return (if exact { "exact" } else { "near" }, vec![own]);
        }
        let others: Vec<&Record> = self.records.iter().filter(|(at, _)| at.0 == n).map(|(_, record)| record).collect();
        (if others.is_empty() { "miss" } else { "foreign" }, others)
    }

    fn merge(&mut self, at: At, other: Record) -> Merged {
        match self.records.remove(&at) {
            None => {
                self.missed.remove(&at);
                self.records.insert(at, other);
                Merged::Added
            }
            Some(there) => {
                let both = there.clone().merge(other);
                let merged = if both == there { Merged::Unchanged } else { Merged::Joined };
                if merged == Merged::Joined {
                    self.missed.remove(&at);
                }
                self.records.insert(at, both);
                merged
            }
        }
    }

    fn take(&mut self, step: &Step, store: &Store) {
        match step {
            Step::Lookup(at) => self.look(*at, &device(at.1), store),
            Step::LookupUpdated(at) => {
                let mut device = device(at.1);
                device.soft.insert("driver".into(), "2.0".into());
                self.look(*at, &device, store);
            }
            Step::Put(at, when, n) => {
                let (key, device, new) = (key(at.0), device(at.1), edition(store.id(), *when, *n));
                store.put(&key, &device, new.clone(), "matmul m=1").unwrap();
                let empty = Record { editions: vec![], ..record(&key, &device, new.clone()) };
                self.records.entry(*at).or_insert(empty).put(new);
                self.missed.remove(at);
            }
            Step::Merge(at, when, n, who) => {
                let new = record(&key(at.0), &device(at.1), edition(from_elsewhere(*who), *when, *n));
                assert_eq!(store.merge(new.clone()).unwrap(), self.merge(*at, new));
            }
            Step::Remove(at) => {
                let there = self.records.remove(at).is_some();
                let result = entry(store, *at);
                assert_eq!(result.is_some(), there);
                result.into_iter().for_each(|entry| assert!(store.remove(&entry).unwrap()));
            }
            Step::Damage(at) => self.damage(*at, store),
            Step::Miss(at) => {
                store.miss(&key(at.0), &device(at.1), "matmul m=1");
                self.missed.insert(*at);
            }
            Step::Note(n, value) => {
                let slug = device(*n).slug();
                let value = match value {
                    Some(value) => {
                        store.put_note(&slug, "n", &serde_json::json!(value)).unwrap();
                        self.notes.insert(*n, *value);
                        Some(*value)
                    }
                    None => {
                        assert_eq!(store.remove_note(&slug, "n").unwrap(), self.notes.remove(n).is_some());
                        None
                    }
                };
                assert_eq!(store.note(&slug, "n"), value.map(|v| serde_json::json!(v)));
            }
            Step::List => self.list(store),
            Step::Export => self.export(store),
            Step::Import(at, when, n) => {
                let one = |who| record(&key(at.0), &device(at.1), edition(from_elsewhere(who), *when, *n));
                let bundle = Bundle::parse(&Bundle::of_records([one(true), one(false)]).to_bytes()).unwrap();
                let imported = bundle.put_into(store).unwrap();
                let merged = bundle.records().map(|record| self.merge(*at, record)).collect::<Vec<_>>();
                let count = |what| merged.iter().filter(|m| **m == what).count();
                let counts = (imported.added, imported.joined, imported.unchanged);
                assert_eq!(counts, (count(Merged::Added), count(Merged::Joined), count(Merged::Unchanged)));
            }
            Step::Reopen => {}
        }
    }

    fn look(&self, at: At, device: &Fingerprint, store: &Store) {
        let (word, expected) = self.answer(at, device);
        let (result, record) = match store.lookup(&key(at.0), device) {
            Match::Exact(record) => ("exact", Some(record)),
            Match::Near(record) => ("near", Some(record)),
            Match::Foreign(record, _) => ("foreign", Some(record)),
            Match::Miss => ("miss", None),
        };
        assert_eq!((result, record.is_some()), (word, !expected.is_empty()), "{at:?}");
        assert!(record.is_none_or(|record| expected.contains(&&*record)));
    }

    /// A flipped bit: the check names it, nobody is answered with it, and its key alone is lost.
    fn damage(&mut self, at: At, store: &Store) {
        if self.records.remove(&at).is_none() {
            return;
        }
        let place = Place::of(&key(at.0), &device(at.1).slug()).unwrap();
        let flip = |result| {
            let ReadResult::Bytes(mut bytes) = result else { panic!("{result:?}") };
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            Ok(Change::to(bytes))
        };
        store.backend().put(&place, Duration::from_secs(10), &mut { flip }).unwrap();
        assert_eq!(verify(store).damaged.len(), 1);
        assert_eq!(store.read(&key(at.0), &device(at.1).slug()), None);
        assert!(verify(store).is_clean());
    }

    fn list(&self, store: &Store) {
        let of = |at: &At| (device(at.1).slug(), key(at.0).hash());
        let expected: BTreeSet<_> = self.records.keys().map(of).collect();
        let entries = store.entries();
        assert_eq!(entries.iter().map(|e| (e.device_slug.clone(), e.hash.clone())).collect::<BTreeSet<_>>(), expected);
        assert!(entries.iter().all(|e| matches!(store.check(e), Checked::Whole(_))));
        let missed: BTreeSet<_> = store.misses().iter().map(|m| (m.device_slug(), m.key().hash())).collect();
        assert_eq!(missed, self.missed.iter().map(of).collect());
        let notes: BTreeSet<_> = self.notes.keys().map(|n| (device(*n).slug(), "n".to_string())).collect();
        assert_eq!(store.notes().into_iter().collect::<BTreeSet<_>>(), notes);
        assert_eq!(verify(store).ok, self.records.len());
    }

    fn export(&self, store: &Store) {
        let bundle = Bundle::of(store, |_| true);
        assert_eq!((bundle.len(), bundle.left_out), (self.records.len(), 0));
        let other = Store::memory();
        assert_eq!(bundle.put_into(&other).unwrap().added, self.records.len());
        assert_eq!(Bundle::of(&other, |_| true).to_bytes(), bundle.to_bytes());
        assert_eq!(bundle.put_into(&other).unwrap().unchanged, self.records.len());
    }
}

fn entry(store: &Store, at: At) -> Option<Entry> {
    let (slug, hash) = (device(at.1).slug(), key(at.0).hash());
    store.entries().into_iter().find(|e| e.device_slug == slug && e.hash == hash)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_store_does_what_a_map_of_records_does(steps in steps()) {
        for made in Made::all() {
            let (mut store, mut model) = (Store::new(made.open()), Model::default());
            for step in &steps {
                if let Step::Reopen = step {
                    store = Store::new(made.open());
                }
                model.take(step, &store);
            }
            let store = Store::new(made.open());
            model.list(&store);
            for (at, record) in &model.records {
                let result = store.read(&key(at.0), &device(at.1).slug()).unwrap();
                assert_eq!(&result, record, "{at:?} in {}", store.place());
            }
        }
    }
}
