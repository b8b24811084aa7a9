//! The store itself: the rules of keeping, the same on every backend. Keys and editions come in, records and matches go
//! out.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::backends::backend::{Change, Listed, Mark, ReadResult, StoreBackend};
use crate::backends::directory::DirectoryBackend;
use crate::backends::files::Files;
use crate::backends::memory::MemoryBackend;
use crate::far::Far;
use crate::format::file::{encode, judge};
use crate::format::stamp::join;
use crate::io::sanitize_text::brief;
use crate::locks::holder::Holder;
use crate::locks::lock::Flight;
use crate::names::{Kind, Place, new_record};
use crate::problems::misfit;
use crate::records::fingerprint::Fingerprint;
use crate::records::key::Key;
use crate::records::record::{Record, TuningRun};
use crate::{Checked, Entry, Match, Merged, SetAside, StoreError};

/// How long a writer waits for other writers of its key.
pub(crate) const WRITE_WAIT: Duration = Duration::from_secs(30);
/// How long a reader waits to set a damaged document aside.
const ASIDE_WAIT: Duration = Duration::from_secs(2);
/// Other devices' records that are opened for a key that this one does not have.
const MAX_FOREIGN: usize = 64;

/// Where records are kept. Lookups never fail: what cannot be read is a warning and a miss.
///
/// One for every place: what differs from place to place is the [`StoreBackend`] under it. A clone is the same store.
#[derive(Clone)]
pub struct Store {
    pub(crate) backend: Arc<dyn StoreBackend>,
    pub(crate) far: Option<Arc<dyn Far>>,
    // Only ever taken with `try_lock`: in a child made by fork it may be held by a thread that does not exist there.
    warned: Arc<Mutex<HashSet<String>>>,
}

impl Store {
    /// The store on a backend.
    pub fn new(backend: Arc<dyn StoreBackend>) -> Store {
        Store { backend, far: None, warned: Arc::default() }
    }

    /// An empty store that ends with its process.
    pub fn memory() -> Store {
        Store::new(Arc::new(MemoryBackend::new()))
    }

    /// The store in a directory, which is made where there is none. Refuses a place somebody else could write to.
    pub fn directory(root: &Path) -> Result<Store, StoreError> {
        Store::directory_on(root, Files::default())
    }

    /// The store in a directory on a file system with a test's hook in it.
    pub fn directory_on(root: &Path, files: Files) -> Result<Store, StoreError> {
        Ok(Store::new(Arc::new(DirectoryBackend::open_with(root, files)?)))
    }

    /// What it stands on.
    pub fn backend(&self) -> &Arc<dyn StoreBackend> {
        &self.backend
    }

    /// The id editions measured here carry as their origin: 16 hexadecimal digits, made with the store.
    pub fn id(&self) -> &str {
        self.backend.id()
    }

    /// Where it is, for people: the directory, or `memory`.
    pub fn place(&self) -> String {
        self.backend.title()
    }

    /// The best match for a key on a device.
    pub fn lookup(&self, key: &Key, device: &Fingerprint) -> Match {
        let Ok(place) = Place::of(key, &device.slug()) else {
            return Match::Miss;
        };
        match self.load(&place, Some(device)) {
            Some(record) if record.current(device, self.id()).is_some() => Match::Exact(Box::new(record)),
            Some(record) if !record.editions.is_empty() => Match::Near(Box::new(record)),
            _ => self.foreign(&place),
        }
    }

    /// The record of a key on the device with this folder name.
    pub fn read(&self, key: &Key, device_slug: &str) -> Option<Record> {
        self.load(&Place::of(key, device_slug).ok()?, None)
    }

    /// Adds an edition to what is there, durably; the key counts as missed no more.
    pub fn put(&self, key: &Key, device: &Fingerprint, edition: TuningRun, problem: &str) -> Result<(), StoreError> {
        let place = Place::of(key, &device.slug())?;
        self.backend.put(&place, WRITE_WAIT, &mut |result| {
            let (there, set_aside) = self.there(&result, &place, Some(device))?;
            let record = match there {
                Some(mut record) => {
                    record.put(edition.clone());
                    record.problem = problem.to_string();
                    record
                }
                None => new_record(key, device, edition.clone(), problem),
            };
            Ok(Change { set_aside, put: Some(encode(record)?.into_bytes()) })
        })?;
        self.forget_miss(&place);
        if let Some(far) = &self.far {
            far.news();
        }
        Ok(())
    }

    /// Merges a whole record from elsewhere, durably. An edition that claims to come from here never replaces one that is
    /// here and never counts as one, and none is newer than the moment it came.
    pub fn merge(&self, record: Record) -> Result<Merged, StoreError> {
        self.merge_many(vec![record]).pop().unwrap_or(Ok(Merged::Unchanged))
    }

    /// Merges many records, each as [`Store::merge`] would; the answers are in the order of the records.
    pub fn merge_many(&self, records: Vec<Record>) -> Vec<Result<Merged, StoreError>> {
        self.merge_vouched(records, &BTreeSet::new())
    }

    /// Merges records whose editions say rightly who vouches for them.
    pub(crate) fn take_in(&self, records: Vec<Record>) -> Vec<Result<Merged, StoreError>> {
        let mut places: BTreeMap<Place, Vec<usize>> = BTreeMap::new();
        let mut done: Vec<Result<Merged, StoreError>> = Vec::with_capacity(records.len());
        for (n, record) in records.iter().enumerate() {
            let place = match misfit(record) {
                None => Place::of_record(record),
                Some(problem) => {
                    Err(StoreError::OtherProblem { key: record.key.clone(), problem: problem.to_string() })
                }
            };
            done.push(place.map(|place| places.entry(place).or_default().push(n)).map(|()| Merged::Unchanged));
        }
        // Several of one key are rare: the first goes with the batch, the others on their own afterwards.
        let mut firsts: Vec<(Place, usize, Record)> = Vec::with_capacity(places.len());
        for (place, which) in &places {
            let mut record = records[which[0]].clone();
            record.settle();
            // What brings nothing new needs no lock: a second import of the same bundle writes nothing at all.
            if !self.has(place, &record) {
                firsts.push((place.clone(), which[0], record));
            }
        }
        let at: Vec<Place> = firsts.iter().map(|(place, ..)| place.clone()).collect();
        let mut became = vec![Merged::Unchanged; firsts.len()];
        let put = self.backend.put_many(&at, WRITE_WAIT, &mut |n, result| {
            let (place, _, record) = &firsts[n];
            let (there, set_aside) = self.there(&result, place, None)?;
            let both = join(there.clone(), record.clone(), self.id());
            let (record, merged) = match there {
                Some(there) if both == there => (both, Merged::Unchanged),
                Some(_) => (both, Merged::Joined),
                None => (both, Merged::Added),
            };
            became[n] = merged;
            let put = (merged != Merged::Unchanged).then(|| encode(record)).transpose()?;
            Ok(Change { set_aside, put: put.map(String::into_bytes) })
        });
        for (((place, n, _), put), merged) in firsts.iter().zip(put).zip(became) {
            if put.is_ok() && merged != Merged::Unchanged {
                self.forget_miss(place);
            }
            done[*n] = put.map(|()| merged);
        }
        for which in places.values() {
            for n in &which[1..] {
                done[*n] = self.take_in(vec![records[*n].clone()]).pop().unwrap_or(Ok(Merged::Unchanged));
            }
        }
        done
    }

    /// Waits for the right to tune a key on a device. It frees itself when its holder dies.
    pub fn lock(&self, key: &Key, device: &Fingerprint) -> Flight {
        loop {
            if let Some(flight) = self.flight(key, device, None) {
                return flight;
            }
        }
    }

    /// Like [`Store::lock`], but gives up after `wait`: `None` when somebody else is still tuning the key.
    pub fn try_lock(&self, key: &Key, device: &Fingerprint, wait: Duration) -> Option<Flight> {
        self.flight(key, device, Some(wait))
    }

    /// Who tunes a key on a device now, as far as it is known.
    pub fn holder(&self, key: &Key, device: &Fingerprint) -> Option<Holder> {
        self.backend.holder(&Place::of(key, &device.slug()).ok()?)
    }

    /// Every record by its place, sorted by device, operation and hash; none is opened.
    pub fn entries(&self) -> Vec<Entry> {
        self.listed(Kind::Record).into_iter().map(|listed| self.entry(listed)).collect()
    }

    /// The records written since a mark (all with `None`), and the mark to ask with next time. One may be told twice,
    /// none is left out; what was removed is not told.
    pub fn since(&self, mark: Option<&Mark>) -> Result<(Vec<Entry>, Mark), StoreError> {
        let (listed, mark) = self.backend.since(Kind::Record, mark)?;
        Ok((listed.into_iter().map(|listed| self.entry(listed)).collect(), mark))
    }

    /// Opens one entry and changes nothing.
    pub fn check(&self, entry: &Entry) -> Checked {
        let place = match Place::filed(Kind::Record, &entry.device_slug, &entry.op, &entry.hash) {
            Ok(place) => place,
            Err(e) => return Checked::Damaged(e.to_string()),
        };
        match self.backend.get(&place) {
            Ok(result) => judge(&result, &place).unwrap_or(Checked::Gone),
            Err(e) => Checked::Unreadable(e.to_string()),
        }
    }

    /// Removes a record; `false` when it was not there.
    pub fn remove(&self, entry: &Entry) -> Result<bool, StoreError> {
        self.backend.delete(&Place::filed(Kind::Record, &entry.device_slug, &entry.op, &entry.hash)?)
    }

    /// Documents that were set aside.
    pub fn set_aside(&self) -> Vec<SetAside> {
        self.backend.set_aside()
    }

    /// Removes what was set aside, and what killed writers left behind; how many. Younger than `age` stay.
    pub fn sweep(&self, age: Duration) -> usize {
        self.backend.sweep(age)
    }

    /// The record of a place for a reader. Damage is set aside.
    fn load(&self, place: &Place, device: Option<&Fingerprint>) -> Option<Record> {
        let result = match self.backend.get(place) {
            Ok(result) => result,
            Err(e) => {
                self.warn_once(place.to_string(), &e.to_string());
                return None;
            }
        };
        match judge_for(&result, place, device)? {
            Checked::Whole(record) => match misfit(&record) {
                None => Some(self.without_revoked(*record)),
                Some(problem) => {
                    self.warn_about(place, &format!("it was raced for {}, which has another key", brief(problem)));
                    None
                }
            },
            Checked::Damaged(_) | Checked::Misplaced(_) => self.load_damaged(place, device),
            Checked::Newer(schema) => {
                self.warn_about(place, &format!("it was written by a newer warplap (form {schema})"));
                None
            }
            Checked::Unreadable(why) => {
                self.warn_about(place, &why);
                None
            }
            Checked::Gone => None,
        }
    }

    /// Looks again as a writer, so that a whole record put there meanwhile is not set aside in place of a damaged one.
    fn load_damaged(&self, place: &Place, device: Option<&Fingerprint>) -> Option<Record> {
        let mut record = None;
        let looked = self.backend.put(place, ASIDE_WAIT, &mut |result| {
            let (there, set_aside) = self.there(&result, place, device)?;
            record = there;
            Ok(Change { set_aside, put: None })
        });
        if let Err(e) = looked {
            self.warn_about(place, &format!("it is damaged and could not be set aside: {e}"));
            return None;
        }
        record
    }

    /// The record of a place for a writer, or why what is there has to be set aside. A newer record is an error.
    fn there(
        &self,
        result: &ReadResult,
        place: &Place,
        device: Option<&Fingerprint>,
    ) -> Result<(Option<Record>, Option<String>), StoreError> {
        match judge_for(result, place, device) {
            None | Some(Checked::Gone) => Ok((None, None)),
            Some(Checked::Whole(record)) => Ok((Some(*record), None)),
            Some(Checked::Newer(schema)) => Err(StoreError::NewerSchema { path: self.path(place), schema }),
            Some(Checked::Damaged(why) | Checked::Misplaced(why) | Checked::Unreadable(why)) => {
                self.warn_about(place, &format!("{why}; set aside"));
                Ok((None, Some(why)))
            }
        }
    }

    /// Whether a merge would bring nothing new.
    fn has(&self, place: &Place, record: &Record) -> bool {
        let result = self.backend.get(place).ok();
        match result.and_then(|result| judge(&result, place)) {
            Some(Checked::Whole(there)) => join(Some((*there).clone()), record.clone(), self.id()) == *there,
            _ => false,
        }
    }

    /// Another device's record of the key: the one written last.
    fn foreign(&self, place: &Place) -> Match {
        let mut others = self.backend.elsewhere(place).unwrap_or_else(|e| {
            self.warn_once("elsewhere".into(), &e.to_string());
            Vec::new()
        });
        others.sort_by(|a, b| (b.modified, &b.place).cmp(&(a.modified, &a.place)));
        let result = others.into_iter().take(MAX_FOREIGN).find_map(|Listed { place, .. }| {
            let record = self.load(&place, None).filter(|r| !r.editions.is_empty())?;
            Some((record, place.device().to_string()))
        });
        result.map_or(Match::Miss, |(record, device)| Match::Foreign(Box::new(record), device))
    }

    /// The flight of a key; within this process only where the backend cannot give one.
    fn flight(&self, key: &Key, device: &Fingerprint, wait: Option<Duration>) -> Option<Flight> {
        let until = wait.map(|wait| Instant::now() + wait);
        let Ok(place) = Place::of(key, &device.slug()) else {
            return Flight::local(&key.text, until);
        };
        let near = self.backend.lease(&place, wait).unwrap_or_else(|e| {
            self.warn_about(&place, &format!("other processes may tune the same keys: {e}"));
            Flight::local(&format!("{}/{place}", self.place()), until)
        })?;
        self.far_flight(near, key, device, until)
    }

    /// What a listing holds, sorted; nothing where it cannot be listed.
    pub(crate) fn listed(&self, kind: Kind) -> Vec<Listed> {
        let mut listed = match self.backend.since(kind, None) {
            Ok((listed, _)) => listed,
            Err(e) => {
                self.warn_once(format!("every {}", kind.word()), &e.to_string());
                return Vec::new();
            }
        };
        listed.sort_by(|a, b| a.place.cmp(&b.place));
        listed
    }

    fn entry(&self, listed: Listed) -> Entry {
        let Listed { place, bytes, modified } = listed;
        let (op, hash) = place.name().split_once('/').unwrap_or_default();
        Entry {
            device_slug: place.device().to_string(),
            op: op.to_string(),
            hash: hash.to_string(),
            path: self.backend.path(&place).unwrap_or_default(),
            bytes,
            modified,
        }
    }

    /// A place for a message.
    pub(crate) fn path(&self, place: &Place) -> PathBuf {
        self.backend.path(place).unwrap_or_else(|| format!("{}: {place}", self.place()).into())
    }

    pub(crate) fn warn_about(&self, place: &Place, why: &str) {
        self.warn_once(place.to_string(), &format!("{}: {why}", self.path(place).display()));
    }

    /// Warns of something that a program should hear of once, however many records it is true of.
    pub fn warn_once_of(&self, of: &str, why: &str) {
        self.warn_once(of.into(), why);
    }

    /// Warns, once for each thing to warn of.
    pub(crate) fn warn_once(&self, of: String, why: &str) {
        if self.warned.try_lock().map_or(true, |mut warned| warned.insert(of)) {
            tracing::warn!("store: {why}");
        }
    }
}

/// A record whose device only looks like the one asked for (eight digits of a hash can be equal) is not in its place.
fn judge_for(result: &ReadResult, place: &Place, device: Option<&Fingerprint>) -> Option<Checked> {
    Some(match (judge(result, place)?, device) {
        (Checked::Whole(record), Some(device)) if record.device != device.hard => {
            Checked::Misplaced("it belongs to another device".into())
        }
        (checked, _) => checked,
    })
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({})", self.place())
    }
}
