//! The directory store as a `Store`: lookups, puts, locks and notes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::directory::{DirectoryStore, MAX_SMALL};
use super::file::{encode, look};
use super::files::ReadError;
use super::listing;
use super::lock::Flight;
use super::names::{DEVICES, LOCKS, MISSES, Place, RECORDS, is_note, is_slug, join, new_record, shorten};
use super::sealed::{readable, seal, unseal};
use super::{Checked, Entry, Match, Merged, Missed, SetAside, Store, StoreError};
use crate::fingerprint::Fingerprint;
use crate::key::Key;
use crate::record::{Edition, Record};

/// Devices asked about a key that this one does not have.
const MAX_FOREIGN: usize = 64;
/// A writer needs milliseconds: what it wrote an hour ago it will not come back for.
const LEFT_BEHIND: Duration = Duration::from_secs(3600);

impl Store for DirectoryStore {
    fn id(&self) -> &str {
        &self.id
    }

    fn place(&self) -> String {
        self.root.display().to_string()
    }

    fn lookup(&self, key: &Key, device: &Fingerprint) -> Match {
        let Ok(place) = Place::of(key, &device.slug()) else {
            return Match::Miss;
        };
        match self.load(&place, Some(device)) {
            Some(record) if record.current(&device.soft_id(), &self.id).is_some() => Match::Exact(Box::new(record)),
            Some(record) if !record.editions.is_empty() => Match::Near(Box::new(record)),
            _ => self.foreign(&place),
        }
    }

    fn read(&self, key: &Key, device_slug: &str) -> Option<Record> {
        self.load(&Place::of(key, device_slug).ok()?, None)
    }

    fn put(&self, key: &Key, device: &Fingerprint, edition: Edition, problem: &str) -> Result<(), StoreError> {
        let place = Place::of(key, &device.slug())?;
        let _lock = self.write_lock(&place)?;
        let record = match self.there(&place, Some(device))? {
            Some(mut record) => {
                record.put(edition);
                record.problem = problem.to_string();
                record
            }
            None => new_record(key, device, edition, problem),
        };
        self.keep(&place, record)?;
        self.found(&place);
        Ok(())
    }

    fn merge(&self, record: Record) -> Result<Merged, StoreError> {
        let mut done = self.merge_many(vec![record]);
        done.pop().unwrap_or(Ok(Merged::Unchanged))
    }

    fn merge_many(&self, records: Vec<Record>) -> Vec<Result<Merged, StoreError>> {
        // In the order of their places, so that two who merge the same records never wait for each other.
        let mut places: BTreeMap<Place, Vec<usize>> = BTreeMap::new();
        let mut done: Vec<Result<Merged, StoreError>> = Vec::with_capacity(records.len());
        for (n, record) in records.iter().enumerate() {
            let place = Place::of_record(record);
            done.push(place.map(|place| places.entry(place).or_default().push(n)).map(|()| Merged::Unchanged));
        }
        let (mut locks, mut files) = (Vec::new(), Vec::new());
        for (place, which) in &places {
            // Several of one key are rare: the first goes with the batch, the others on their own afterwards.
            match self.merged(place, records[which[0]].clone()) {
                Ok((merged, lock, text)) => {
                    done[which[0]] = Ok(merged);
                    locks.push(lock);
                    files.extend(text.map(|text| (place.file(&self.root, RECORDS), text, which[0], place)));
                }
                Err(e) => done[which[0]] = Err(e),
            }
        }
        let bytes: Vec<_> = files.iter().map(|(path, text, _, _)| (path.clone(), text)).collect();
        let kept = self.whole.write_all(&self.root, &bytes);
        for (path, _, n, place) in &files {
            match &kept {
                Ok(()) => self.found(place),
                // The error belongs to the whole batch; it is told for each.
                Err(e) => done[*n] = Err(StoreError::io("writing", path, copy(e))),
            }
        }
        drop(locks);
        self.settle_identity();
        for which in places.values() {
            for n in &which[1..] {
                done[*n] = self.merge(records[*n].clone());
            }
        }
        done
    }

    fn lock(&self, key: &Key, device: &Fingerprint) -> Flight {
        loop {
            let flight = match Place::of(key, &device.slug()) {
                Ok(place) => self.flight(&place, None),
                Err(_) => Flight::local(&key.text, None),
            };
            if let Some(flight) = flight {
                return flight;
            }
        }
    }

    fn try_lock(&self, key: &Key, device: &Fingerprint, wait: Duration) -> Option<Flight> {
        let until = Some(Instant::now() + wait);
        match Place::of(key, &device.slug()) {
            Ok(place) => self.flight(&place, until),
            Err(_) => Flight::local(&key.text, until),
        }
    }

    fn miss(&self, key: &Key, device: &Fingerprint, problem: &str) {
        let Ok(place) = Place::of(key, &device.slug()) else {
            return;
        };
        let path = place.file(&self.root, MISSES);
        if path.exists() {
            return;
        }
        let (op, key) = (key.op.clone(), key.text.clone());
        let missed = Missed { op, key, problem: problem.to_string(), device: device.hard.clone() };
        let Ok(body) = readable(&missed) else { return };
        if let Err(e) = self.whole.write_lightly(&self.root, &path, seal("miss", &body).as_bytes()) {
            self.warn_once(&self.root.join(MISSES), &format!("missed keys cannot be remembered: {e}"));
        }
    }

    fn misses(&self) -> Vec<Missed> {
        let mut places = listing::places(&self.root.join(MISSES));
        places.sort();
        let read = |place: &Place| {
            let bytes = self.whole.files.read(&place.file(&self.root, MISSES), MAX_SMALL).ok()?;
            let missed: Missed = serde_json::from_str(unseal("miss", &bytes).ok()?).ok()?;
            (Place::of(&missed.key(), &missed.device_slug()).ok()? == *place).then_some(missed)
        };
        places.iter().filter_map(read).collect()
    }

    fn entries(&self) -> Vec<Entry> {
        listing::entries(&self.root.join(RECORDS))
    }

    fn check(&self, entry: &Entry) -> Checked {
        let place = match Place::named(&entry.device_slug, &entry.op, &entry.hash) {
            Ok(place) => place,
            Err(e) => return Checked::Damaged(e.to_string()),
        };
        match look(&self.whole.files, &place.file(&self.root, RECORDS), &place) {
            Ok(Some(checked)) => checked,
            Ok(None) => Checked::Unreadable("it is gone".into()),
            Err(e) => Checked::Unreadable(e.to_string()),
        }
    }

    fn remove(&self, entry: &Entry) -> Result<bool, StoreError> {
        let place = Place::named(&entry.device_slug, &entry.op, &entry.hash)?;
        let _lock = self.write_lock(&place)?;
        let path = place.file(&self.root, RECORDS);
        match self.whole.files.remove(&path) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(StoreError::io("removing", &path, e)),
        }
    }

    fn note(&self, device_slug: &str, name: &str) -> Option<serde_json::Value> {
        let path = self.note_path(device_slug, name).ok()?;
        match self.read_note(&path, device_slug, name) {
            Ok(value) => value,
            Err(why) => {
                self.warn_once(&path, &why);
                None
            }
        }
    }

    fn put_note(&self, device_slug: &str, name: &str, value: &serde_json::Value) -> Result<(), StoreError> {
        let path = self.note_path(device_slug, name)?;
        let note = Note { device: device_slug.into(), name: name.into(), value: value.clone() };
        let body = readable(&note).map_err(|e| StoreError::Invalid(e.to_string()))?;
        let text = seal("note", &body);
        if text.len() as u64 > MAX_SMALL {
            return Err(StoreError::Invalid(format!("the note has {} bytes, more than {MAX_SMALL}", text.len())));
        }
        let lock = self.root.join(LOCKS).join(format!("{device_slug}.{name}.note"));
        let _lock = self.lock_file(&lock, Duration::from_secs(30))?;
        if self.read_note(&path, device_slug, name).is_err() {
            self.move_aside(&path).map_err(|e| StoreError::io("setting aside", &path, e))?;
        }
        self.whole.write(&self.root, &path, text.as_bytes()).map_err(|e| StoreError::io("writing", &path, e))
    }

    fn notes(&self) -> Vec<(String, String)> {
        listing::notes(&self.root.join(DEVICES))
    }

    fn remove_note(&self, device_slug: &str, name: &str) -> Result<bool, StoreError> {
        let path = self.note_path(device_slug, name)?;
        match self.whole.files.remove(&path) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(StoreError::io("removing", &path, e)),
        }
    }

    fn set_aside(&self) -> Vec<SetAside> {
        let aside = |(path, meta): (PathBuf, fs::Metadata)| {
            listing::damaged_at(&path).map(|_| SetAside { path, bytes: meta.len() })
        };
        let mut all: Vec<SetAside> = listing::leftovers(&self.root).into_iter().filter_map(aside).collect();
        all.sort_by(|a, b| a.path.cmp(&b.path));
        all
    }

    fn sweep(&self, age: Duration) -> usize {
        let now = SystemTime::now();
        let is_old = |(path, meta): &(PathBuf, fs::Metadata)| {
            let since = |at: SystemTime| now.duration_since(at).unwrap_or_default();
            match listing::damaged_at(path) {
                Some(at) => since(at) >= age,
                None => meta.modified().is_ok_and(|at| since(at) >= age.max(LEFT_BEHIND)),
            }
        };
        let old: Vec<_> = listing::leftovers(&self.root).into_iter().filter(is_old).collect();
        let removed = old.iter().filter(|(path, _)| self.whole.files.remove(path).is_ok()).count();
        for (path, _) in listing::files(&self.root.join(LOCKS)) {
            // Taking a lock that nobody has and letting go of it removes its file.
            if path.extension().is_some_and(|e| e == "flight" || e == "write" || e == "note") {
                drop(Flight::shared(&self.whole.files, &path, Some(Instant::now())));
            }
        }
        removed
    }
}

#[derive(Serialize, Deserialize)]
struct Note {
    device: String,
    name: String,
    value: serde_json::Value,
}

impl DirectoryStore {
    /// Another device's record of the key: the one written last, of the first few devices.
    fn foreign(&self, place: &Place) -> Match {
        let others = listing::subdirs(&self.root.join(RECORDS))
            .into_iter()
            .filter(|name| *name != place.device && is_slug(name));
        let mut found: Vec<(SystemTime, Place)> = others
            .take(MAX_FOREIGN)
            .filter_map(|device| {
                let place = Place { device, ..place.clone() };
                let meta = fs::symlink_metadata(place.file(&self.root, RECORDS)).ok()?;
                Some((meta.modified().unwrap_or(UNIX_EPOCH), place))
            })
            .collect();
        found.sort_by(|a, b| b.cmp(a));
        let record = found.into_iter().find_map(|(_, place)| {
            let record = self.load(&place, None).filter(|r| !r.editions.is_empty())?;
            Some((record, place.device))
        });
        record.map_or(Match::Miss, |(record, device)| Match::Foreign(Box::new(record), device))
    }

    /// What a place holds after a merge, its lock, and the text to write where that is something new.
    fn merged(
        &self,
        place: &Place,
        mut record: Record,
    ) -> Result<(Merged, Option<Flight>, Option<String>), StoreError> {
        record.settle();
        // What brings nothing new needs no lock: a second import of the same bundle writes nothing at all.
        if let Ok(Some(Checked::Whole(there))) = look(&self.whole.files, &place.file(&self.root, RECORDS), place)
            && join((*there).clone(), record.clone(), &self.id) == *there
        {
            return Ok((Merged::Unchanged, None, None));
        }
        let lock = self.write_lock(place)?;
        let (record, merged) = match self.there(place, None)? {
            Some(there) => {
                let both = join(there.clone(), record, &self.id);
                let merged = if both == there { Merged::Unchanged } else { Merged::Joined };
                (both, merged)
            }
            None => (record, Merged::Added),
        };
        let text = if merged == Merged::Unchanged { None } else { Some(encode(record)?) };
        Ok((merged, Some(lock), text))
    }

    /// The key of a place counts as missed no more.
    fn found(&self, place: &Place) {
        let _ = self.whole.files.remove(&place.file(&self.root, MISSES));
    }

    fn note_path(&self, device_slug: &str, name: &str) -> Result<PathBuf, StoreError> {
        if !is_slug(device_slug) || !is_note(name) {
            let names = format!("'{}' or '{}'", shorten(device_slug), shorten(name));
            return Err(StoreError::Invalid(format!("{names} is no name for a note")));
        }
        Ok(self.root.join(DEVICES).join(device_slug).join(format!("{name}.json")))
    }

    fn read_note(&self, path: &Path, device: &str, name: &str) -> Result<Option<serde_json::Value>, String> {
        let bytes = match self.whole.files.read(path, MAX_SMALL) {
            Ok(bytes) => bytes,
            Err(ReadError::Bad(why)) => return Err(why),
            Err(ReadError::Io(_)) => return Ok(None),
        };
        let note: Note = serde_json::from_str(unseal("note", &bytes)?).map_err(|e| e.to_string())?;
        if note.device != device || note.name != name {
            return Err("it is another note".into());
        }
        Ok(Some(note.value))
    }
}

/// The same error again: an `io::Error` cannot be cloned.
fn copy(e: &std::io::Error) -> std::io::Error {
    e.raw_os_error().map_or_else(|| e.kind().into(), std::io::Error::from_raw_os_error)
}
