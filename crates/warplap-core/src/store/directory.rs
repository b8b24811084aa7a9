//! The store in a directory: a file a key. Readers take no lock; writers of one key take turns.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::file::{encode, look};
use super::files::{Files, ReadError};
use super::lock::Flight;
use super::names::{DEVICES, LOCKS, MISSES, Place, RECORDS};
use super::sealed::{readable, seal, unseal};
use super::whole::{Whole, fresh};
use super::{Checked, StoreError, trust};
use crate::fingerprint::Fingerprint;
use crate::record::Record;

/// How long a writer waits for other writers of its key.
const WRITE_WAIT: Duration = Duration::from_secs(30);
/// How long a reader waits to set a damaged file aside.
const ASIDE_WAIT: Duration = Duration::from_secs(2);
/// The largest small document: identity, missed key, note.
pub(super) const MAX_SMALL: u64 = 4 << 20;

/// A store in a directory of the user's own.
pub struct DirectoryStore {
    pub(super) root: PathBuf,
    pub(super) id: String,
    pub(super) whole: Whole,
    // Only ever taken with `try_lock`: in a child made by fork it may be held by a thread that does not exist there.
    warned: Mutex<HashSet<PathBuf>>,
}

#[derive(Serialize, Deserialize)]
struct Identity {
    id: String,
}

impl DirectoryStore {
    /// Opens the store at `root`, creating it where there is none. Refuses a place somebody else could write to.
    pub fn open(root: &Path) -> Result<Self, StoreError> {
        Self::open_with(root, Files::default())
    }

    /// Opens a store on a file system with a test's hook in it.
    pub fn open_with(root: &Path, files: Files) -> Result<Self, StoreError> {
        let root = std::path::absolute(root).map_err(|e| StoreError::io("finding", root, e))?;
        let whole = Whole::new(files);
        if !trust::check(&root)? {
            whole.make_dirs(&root, &root).map_err(|e| StoreError::io("creating", &root, e))?;
            trust::check(&root)?;
        }
        for name in [RECORDS, MISSES, DEVICES, LOCKS] {
            let path = root.join(name);
            let Ok(meta) = std::fs::symlink_metadata(&path) else {
                continue;
            };
            let odd = (!meta.is_dir()).then(|| "it is not a directory".to_string());
            if let Some(why) = odd.or_else(|| trust::distrust(&meta)) {
                let remedy = format!("make it a directory of yours alone, or remove it: {}", path.display());
                return Err(StoreError::Untrusted { path, why, remedy });
            }
        }
        let mut store = DirectoryStore { root, id: String::new(), whole, warned: Mutex::default() };
        store.id = store.identify();
        Ok(store)
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn identity_path(&self) -> PathBuf {
        self.root.join("store.json")
    }

    /// The id in the directory; a new one where there is none. Where it cannot be kept, it lasts as long as this process.
    fn identify(&self) -> String {
        self.read_identity().unwrap_or_else(|| self.keep_identity(&format!("{:016x}", fresh())))
    }

    fn read_identity(&self) -> Option<String> {
        let path = self.identity_path();
        let why = match self.whole.files.read(&path, MAX_SMALL) {
            Ok(bytes) => match unseal("store", &bytes).map(serde_json::from_str::<Identity>) {
                Ok(Ok(who)) if who.id.len() == 16 && who.id.bytes().all(|b| b.is_ascii_hexdigit()) => {
                    return Some(who.id);
                }
                Ok(_) => "it does not name a store".to_string(),
                Err(why) => why.to_string(),
            },
            Err(ReadError::Io(_)) => return None,
            Err(ReadError::Bad(why)) => why,
        };
        self.warn_once(&path, &why);
        None
    }

    /// Keeps `id` as this store's, unless somebody else was first; the id that is kept.
    pub(super) fn keep_identity(&self, id: &str) -> String {
        let path = self.identity_path();
        // Without the lock (nothing can be written here) nothing is kept either.
        let Ok(_lock) = self.lock_file(&self.root.join(LOCKS).join("store.write"), WRITE_WAIT) else {
            return id.into();
        };
        if let Some(first) = self.read_identity() {
            return first;
        }
        let _ = std::fs::symlink_metadata(&path).is_ok_and(|_| self.move_aside(&path).is_ok());
        if let Ok(body) = readable(&Identity { id: id.to_string() }) {
            let _ = self.whole.write(&self.root, &path, seal("store", &body).as_bytes());
        }
        id.to_string()
    }

    /// Takes a lock file, creating the directory for it.
    pub(super) fn lock_file(&self, path: &Path, wait: Duration) -> Result<Flight, StoreError> {
        let until = Some(Instant::now() + wait);
        match self.shared(path, until).map_err(|e| StoreError::io("locking", path, e))? {
            Some(flight) => Ok(flight),
            None => Err(StoreError::Busy { path: path.to_path_buf() }),
        }
    }

    fn shared(&self, path: &Path, until: Option<Instant>) -> io::Result<Option<Flight>> {
        match Flight::shared(&self.whole.files, path, until) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.whole.make_dirs(&self.root, &self.root.join(LOCKS))?;
                Flight::shared(&self.whole.files, path, until)
            }
            other => other,
        }
    }

    pub(super) fn write_lock(&self, place: &Place) -> Result<Flight, StoreError> {
        self.lock_file(&place.lock(&self.root, "write"), WRITE_WAIT)
    }

    /// The flight lock of a place; within this process only where nothing can be written.
    pub(super) fn flight(&self, place: &Place, until: Option<Instant>) -> Option<Flight> {
        let path = place.lock(&self.root, "flight");
        match self.shared(&path, until) {
            Ok(flight) => flight,
            Err(e) => {
                self.warn_once(&path, &format!("other processes may tune the same keys: {e}"));
                Flight::local(&path.to_string_lossy(), until)
            }
        }
    }

    /// The record of a place for a reader. Damage is set aside.
    pub(super) fn load(&self, place: &Place, device: Option<&Fingerprint>) -> Option<Record> {
        let path = place.file(&self.root, RECORDS);
        match look(&self.whole.files, &path, place).map(|found| found.map(|found| of_device(found, device))) {
            Ok(None) => None,
            Ok(Some(Checked::Whole(record))) => Some(*record),
            Ok(Some(Checked::Damaged(_) | Checked::Misplaced(_))) => self.load_damaged(place, device),
            Ok(Some(Checked::Newer(schema))) => {
                self.warn_once(&path, &format!("it was written by a newer warplap (form {schema})"));
                None
            }
            Ok(Some(Checked::Unreadable(why))) => {
                self.warn_once(&path, &why);
                None
            }
            Err(e) => {
                self.warn_once(&path, &e.to_string());
                None
            }
        }
    }

    /// Looks again under the lock, so that a whole record put there meanwhile is not set aside in place of a damaged one.
    fn load_damaged(&self, place: &Place, device: Option<&Fingerprint>) -> Option<Record> {
        let path = place.file(&self.root, RECORDS);
        let result =
            self.lock_file(&place.lock(&self.root, "write"), ASIDE_WAIT).and_then(|_lock| self.there(place, device));
        result.unwrap_or_else(|e| {
            self.warn_once(&path, &format!("it is damaged and could not be set aside: {e}"));
            None
        })
    }

    /// The record of a place for a writer, who holds its lock. Damage is set aside; a newer record is an error.
    pub(super) fn there(&self, place: &Place, device: Option<&Fingerprint>) -> Result<Option<Record>, StoreError> {
        let path = place.file(&self.root, RECORDS);
        let found = look(&self.whole.files, &path, place).map_err(|e| StoreError::io("reading", &path, e))?;
        match found.map(|found| of_device(found, device)) {
            None => Ok(None),
            Some(Checked::Whole(record)) => Ok(Some(*record)),
            Some(Checked::Newer(schema)) => Err(StoreError::NewerSchema { path, schema }),
            Some(Checked::Damaged(why) | Checked::Misplaced(why) | Checked::Unreadable(why)) => {
                let aside = self.move_aside(&path).map_err(|e| StoreError::io("setting aside", &path, e))?;
                self.warn_once(&path, &format!("{why}; set aside as {}", aside.display()));
                Ok(None)
            }
        }
    }

    /// Writes a record to its place. The caller holds the place's lock.
    pub(super) fn keep(&self, place: &Place, record: Record) -> Result<(), StoreError> {
        let path = place.file(&self.root, RECORDS);
        let text = encode(record)?;
        self.whole.write(&self.root, &path, text.as_bytes()).map_err(|e| StoreError::io("writing", &path, e))?;
        self.settle_identity();
        Ok(())
    }

    /// Keeps the id where it is not: the directory was deleted underneath, or could not be written at first.
    pub(super) fn settle_identity(&self) {
        if !self.identity_path().exists() && self.root.exists() {
            self.keep_identity(&self.id);
        }
    }

    /// Renames a file to `<name>.damaged-<seconds>-<n>`.
    pub(super) fn move_aside(&self, path: &Path) -> io::Result<PathBuf> {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let free = (0..10_000)
            .map(|n| path.with_added_extension(format!("damaged-{seconds}-{n}")))
            .find(|aside| std::fs::symlink_metadata(aside).is_err())
            .ok_or(io::ErrorKind::AlreadyExists)?;
        self.whole.files.rename(path, &free)?;
        Ok(free)
    }

    /// Warns about a file, once.
    pub(super) fn warn_once(&self, path: &Path, why: &str) {
        let first = self.warned.try_lock().map_or(true, |mut warned| warned.insert(path.to_path_buf()));
        if first {
            tracing::warn!("store: {}: {why}", path.display());
        }
    }
}

/// A record whose device only looks like the one asked for (eight digits of a hash can be equal) is not in its place.
fn of_device(found: Checked, device: Option<&Fingerprint>) -> Checked {
    match (found, device) {
        (Checked::Whole(record), Some(device)) if record.device != device.hard => {
            Checked::Misplaced("it belongs to another device".into())
        }
        (found, _) => found,
    }
}

impl std::fmt::Debug for DirectoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DirectoryStore({})", self.root.display())
    }
}
