//! The store in memory: the same rules without a directory. The fall-back where none can be used, and for tests.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::file::encode;
use super::lock::Flight;
use super::names::{Place, is_note, is_slug, join, new_record, unsound};
use super::whole::fresh;
use super::{Checked, Entry, Match, Merged, Missed, SetAside, Store, StoreError};
use crate::fingerprint::Fingerprint;
use crate::key::Key;
use crate::record::{Edition, Record};

/// A store that ends with its process.
pub struct MemoryStore {
    id: String,
    shelves: Mutex<Shelves>,
}

#[derive(Default)]
struct Shelves {
    records: BTreeMap<Place, (Record, SystemTime)>,
    misses: BTreeMap<Place, Missed>,
    notes: BTreeMap<(String, String), serde_json::Value>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        MemoryStore { id: format!("{:016x}", fresh()), shelves: Mutex::default() }
    }

    fn shelves(&self) -> MutexGuard<'_, Shelves> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flight(&self, key: &Key, device: &Fingerprint, until: Option<Instant>) -> Option<Flight> {
        Flight::local(&format!("{}/{}/{}", self.id, device.slug(), key.text), until)
    }

    fn keep(shelves: &mut Shelves, place: Place, record: Record) -> Result<(), StoreError> {
        // What a directory would refuse is refused here too: a test in memory must not pass what fails on disk.
        encode(record.clone())?;
        shelves.misses.remove(&place);
        shelves.records.insert(place, (record, SystemTime::now()));
        Ok(())
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for MemoryStore {
    fn id(&self) -> &str {
        &self.id
    }

    fn place(&self) -> String {
        "memory".into()
    }

    fn lookup(&self, key: &Key, device: &Fingerprint) -> Match {
        let Ok(place) = Place::of(key, &device.slug()) else {
            return Match::Miss;
        };
        let shelves = self.shelves();
        if let Some((record, _)) = shelves.records.get(&place).filter(|(r, _)| r.device == device.hard) {
            let record = Box::new(record.clone());
            return match record.current(&device.soft_id(), &self.id) {
                Some(_) => Match::Exact(record),
                None => Match::Near(record),
            };
        }
        let same_key = |p: &Place| p.op == place.op && p.hash == place.hash && p.device != place.device;
        let newest = shelves.records.iter().filter(|(p, _)| same_key(p)).max_by_key(|(_, (_, at))| *at);
        newest.map_or(Match::Miss, |(p, (record, _))| Match::Foreign(Box::new(record.clone()), p.device.clone()))
    }

    fn read(&self, key: &Key, device_slug: &str) -> Option<Record> {
        let place = Place::of(key, device_slug).ok()?;
        self.shelves().records.get(&place).map(|(record, _)| record.clone())
    }

    fn put(&self, key: &Key, device: &Fingerprint, edition: Edition, problem: &str) -> Result<(), StoreError> {
        let place = Place::of(key, &device.slug())?;
        let mut shelves = self.shelves();
        let there = shelves.records.get(&place).map(|(record, _)| record.clone());
        let record = match there.filter(|record| record.device == device.hard) {
            Some(mut record) => {
                record.put(edition);
                record.problem = problem.to_string();
                record
            }
            None => new_record(key, device, edition, problem),
        };
        Self::keep(&mut shelves, place, record)
    }

    fn merge(&self, mut record: Record) -> Result<Merged, StoreError> {
        if let Some(why) = unsound(&record) {
            return Err(StoreError::Invalid(why.into()));
        }
        record.settle();
        let place = Place::of_record(&record)?;
        let mut shelves = self.shelves();
        let (record, merged) = match shelves.records.get(&place) {
            Some((there, _)) => {
                let both = join(there.clone(), record, &self.id);
                let merged = if both == *there { Merged::Unchanged } else { Merged::Joined };
                (both, merged)
            }
            None => (record, Merged::Added),
        };
        if merged != Merged::Unchanged {
            Self::keep(&mut shelves, place, record)?;
        }
        Ok(merged)
    }

    fn lock(&self, key: &Key, device: &Fingerprint) -> Flight {
        loop {
            if let Some(flight) = self.flight(key, device, None) {
                return flight;
            }
        }
    }

    fn try_lock(&self, key: &Key, device: &Fingerprint, wait: Duration) -> Option<Flight> {
        self.flight(key, device, Some(Instant::now() + wait))
    }

    fn miss(&self, key: &Key, device: &Fingerprint, problem: &str) {
        let Ok(place) = Place::of(key, &device.slug()) else {
            return;
        };
        let (op, key) = (key.op.clone(), key.text.clone());
        let missed = || Missed { op, key, problem: problem.to_string(), device: device.hard.clone() };
        self.shelves().misses.entry(place).or_insert_with(missed);
    }

    fn misses(&self) -> Vec<Missed> {
        self.shelves().misses.values().cloned().collect()
    }

    fn entries(&self) -> Vec<Entry> {
        let entry = |(place, (record, at)): (&Place, &(Record, SystemTime))| Entry {
            device_slug: place.device.clone(),
            op: place.op.clone(),
            hash: place.hash.clone(),
            path: PathBuf::new(),
            bytes: serde_json::to_string(record).map_or(0, |t| t.len() as u64),
            modified: *at,
        };
        self.shelves().records.iter().map(entry).collect()
    }

    fn check(&self, entry: &Entry) -> Checked {
        let Ok(place) = Place::named(&entry.device_slug, &entry.op, &entry.hash) else {
            return Checked::Unreadable("it has no such place".into());
        };
        match self.shelves().records.get(&place) {
            Some((record, _)) => Checked::Whole(Box::new(record.clone())),
            None => Checked::Unreadable("it is gone".into()),
        }
    }

    fn remove(&self, entry: &Entry) -> Result<bool, StoreError> {
        let place = Place::named(&entry.device_slug, &entry.op, &entry.hash)?;
        Ok(self.shelves().records.remove(&place).is_some())
    }

    fn note(&self, device_slug: &str, name: &str) -> Option<serde_json::Value> {
        self.shelves().notes.get(&(device_slug.to_string(), name.to_string())).cloned()
    }

    fn put_note(&self, device_slug: &str, name: &str, value: &serde_json::Value) -> Result<(), StoreError> {
        if !is_slug(device_slug) || !is_note(name) {
            return Err(StoreError::Invalid("this is no name for a note".into()));
        }
        self.shelves().notes.insert((device_slug.to_string(), name.to_string()), value.clone());
        Ok(())
    }

    fn notes(&self) -> Vec<(String, String)> {
        let mut all: Vec<(String, String)> = self.shelves().notes.keys().cloned().collect();
        all.sort();
        all
    }

    fn remove_note(&self, device_slug: &str, name: &str) -> Result<bool, StoreError> {
        Ok(self.shelves().notes.remove(&(device_slug.to_string(), name.to_string())).is_some())
    }

    fn set_aside(&self) -> Vec<SetAside> {
        Vec::new()
    }

    fn sweep(&self, _: Duration) -> usize {
        0
    }
}
