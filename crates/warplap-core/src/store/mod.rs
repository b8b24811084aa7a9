//! The store: keys and editions come in, durable records go out. It does not know how records were made.
//!
//! ```text
//! <root>/store.json                              who this store is
//! <root>/records-v1/<device>/<op>/<hash>.json    one readable, checksummed file a key, every trial in it
//! <root>/misses-v1/<device>/<op>/<hash>.json     keys that were asked for and not found
//! <root>/devices-v1/<device>/<name>.json         notes on a device, such as its measured ceilings
//! <root>/locks-v1/…                              one file for each lock held right now
//! ```
//! Readers take no lock. A file is put in place whole or not at all. Damage costs the damaged key, nothing else.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::fingerprint::Fingerprint;
use crate::key::Key;
use crate::record::{Edition, Record};

pub mod bundle;
pub mod care;
mod directory;
mod file;
pub mod files;
mod lease;
mod listing;
mod lock;
mod memory;
mod names;
mod open;
mod sealed;
mod shelves;
mod trust;
mod whole;

pub use directory::DirectoryStore;
pub use lock::Flight;
pub use memory::MemoryStore;
pub use open::{Opened, default_root, open_default, open_or_memory};

/// The largest record that is read or written, in bytes.
pub const MAX_RECORD: u64 = 16 << 20;

/// How a lookup matched.
#[derive(Clone, Debug, PartialEq)]
pub enum Match {
    /// This device, and an edition measured under its present soft fingerprint.
    Exact(Box<Record>),
    /// This device, but only editions measured under other driver or library versions.
    Near(Box<Record>),
    /// Another device's record, and the folder name of that device.
    Foreign(Box<Record>, String),
    /// Nothing.
    Miss,
}

/// Where a record stands: device, operation and key, as the file names say. Listed without opening the file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The device's folder name, [`Fingerprint::slug`].
    pub device_slug: String,
    /// The operation.
    pub op: String,
    /// The key's hash, [`Key::hash`].
    pub hash: String,
    /// The file; empty for a store in memory.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// When it was last written.
    pub modified: SystemTime,
}

/// What a check of one entry found.
#[derive(Clone, Debug, PartialEq)]
pub enum Checked {
    /// A whole record in its place.
    Whole(Box<Record>),
    /// Not a whole record, and why.
    Damaged(String),
    /// Written by a newer program, in this version of the form.
    Newer(u32),
    /// A whole record, but of another key or device than its place says.
    Misplaced(String),
    /// Gone meanwhile, or it could not be read just now.
    Unreadable(String),
}

/// A key that was asked for and not found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Missed {
    /// The operation.
    pub op: String,
    /// The key's text.
    pub key: String,
    /// The problem that was asked for, in problem syntax.
    pub problem: String,
    /// The device's hard fingerprint.
    pub device: BTreeMap<String, String>,
}

impl Missed {
    /// The key that was missed.
    pub fn key(&self) -> Key {
        Key::new(&self.op, self.key.clone())
    }

    /// The folder name of the device that asked.
    pub fn device_slug(&self) -> String {
        slug_of(&self.device)
    }
}

/// What merging a record into a store did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merged {
    /// There was none for its key.
    Added,
    /// It brought something new to the one that was there.
    Joined,
    /// Everything in it was known.
    Unchanged,
}

/// A file that was set aside because it was damaged or not in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// Where it is now.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
}

/// Where records are kept. Lookups never fail: what cannot be read is a warning and a miss.
pub trait Store: Send + Sync {
    /// The id editions measured here carry as their origin: 16 hexadecimal digits, made with the store.
    fn id(&self) -> &str;

    /// Where it is, for people: the directory, or `memory`.
    fn place(&self) -> String;

    /// The best match for a key on a device.
    fn lookup(&self, key: &Key, device: &Fingerprint) -> Match;

    /// The record of a key on the device with this folder name.
    fn read(&self, key: &Key, device_slug: &str) -> Option<Record>;

    /// Adds an edition to what is there, durably; the key counts as missed no more.
    fn put(&self, key: &Key, device: &Fingerprint, edition: Edition, problem: &str) -> Result<(), StoreError>;

    /// Merges a whole record, durably. An edition that claims to come from here never replaces one that is here.
    fn merge(&self, record: Record) -> Result<Merged, StoreError>;

    /// Merges many records, each as [`Store::merge`] would; the answers are in the order of the records.
    fn merge_many(&self, records: Vec<Record>) -> Vec<Result<Merged, StoreError>> {
        records.into_iter().map(|record| self.merge(record)).collect()
    }

    /// Waits for the right to tune a key on a device. It frees itself when its holder dies.
    fn lock(&self, key: &Key, device: &Fingerprint) -> Flight;

    /// Like [`Store::lock`], but gives up after `wait`: `None` when somebody else is still tuning the key.
    fn try_lock(&self, key: &Key, device: &Fingerprint, wait: Duration) -> Option<Flight>;

    /// Remembers that a key was asked for and not found. Cheap, and does nothing the second time.
    fn miss(&self, key: &Key, device: &Fingerprint, problem: &str);

    /// The keys remembered by [`Store::miss`], sorted by device, operation and key.
    fn misses(&self) -> Vec<Missed>;

    /// Every record by its place, sorted by device, operation and hash; no file is opened.
    fn entries(&self) -> Vec<Entry>;

    /// Opens one entry and changes nothing.
    fn check(&self, entry: &Entry) -> Checked;

    /// Removes a record; `false` when it was not there.
    fn remove(&self, entry: &Entry) -> Result<bool, StoreError>;

    /// A small document on a device.
    fn note(&self, device_slug: &str, name: &str) -> Option<serde_json::Value>;

    /// Keeps a small document on a device, durably. Names are lower case letters, digits, `_` and `-`.
    fn put_note(&self, device_slug: &str, name: &str, value: &serde_json::Value) -> Result<(), StoreError>;

    /// The notes there are, by the device's folder name and their own, sorted; no file is opened.
    fn notes(&self) -> Vec<(String, String)>;

    /// Removes a note; `false` when it was not there.
    fn remove_note(&self, device_slug: &str, name: &str) -> Result<bool, StoreError>;

    /// Files that were set aside.
    fn set_aside(&self) -> Vec<SetAside>;

    /// Removes files that were set aside, and what killed writers left behind; how many. Younger than `age` stay.
    fn sweep(&self, age: Duration) -> usize;
}

/// Why a store could not be opened or written. Lookups never give one.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Somebody else could have written there, or it is not a directory.
    #[error("the store {} cannot be trusted: {why} ({remedy})", path.display())]
    Untrusted {
        /// The file or directory at fault.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
        /// What to do.
        remedy: String,
    },
    /// No directory is known to keep it in.
    #[error("no directory for the store is known (set WARPLAP_STORE, or HOME)")]
    NoHome,
    /// The file system said no.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// The record there was written by a newer program, which this one must not undo.
    #[error("{} was written by a newer warplap (form {schema}); update this one, or use another store", path.display())]
    NewerSchema {
        /// The record.
        path: PathBuf,
        /// The version of its form.
        schema: u32,
    },
    /// Other writers kept the key's lock for too long.
    #[error("{} is being written by somebody else for too long", path.display())]
    Busy {
        /// The lock file.
        path: PathBuf,
    },
    /// What was to be kept has no place or no form here.
    #[error("this cannot be stored: {0}")]
    Invalid(String),
}

impl StoreError {
    pub(crate) fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        StoreError::Io { doing, path: path.to_path_buf(), source }
    }
}

/// The folder name of a device from its hard fingerprint.
pub(crate) fn slug_of(hard: &BTreeMap<String, String>) -> String {
    Fingerprint { hard: hard.clone(), soft: BTreeMap::new() }.slug()
}
