//! The store: keys and editions come in, durable records go out. It does not know how records were made.
//!
//! One [`Store`] has the rules of keeping; under it is a [`StoreBackend`], which keeps documents: in a directory, in memory,
//! or wherever another crate has one. [`Store::open`] takes a URL. A directory holds
//!
//! ```text
//! <root>/store.json                              who this store is
//! <root>/records-v1/<device>/<op>/<hash>.json    one readable, checksummed file a key, every trial in it
//! <root>/misses-v1/<device>/<op>/<hash>.json     keys that were asked for and not found
//! <root>/devices-v1/<device>/<name>.json         notes on a device, such as its measured ceilings
//! <root>/locks-v1/…                              one file for each lock held right now
//! ```
//! Readers take no lock. A file is put in place whole or not at all. Damage costs the damaged key, nothing else.
//!
//! A backend of another crate is tried by `warplap-core/tests/store_elsewhere.rs`, which is also an example of one.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::io::sanitize_text::brief;
use crate::records::fingerprint::Fingerprint;
use crate::records::key::Key;
use crate::records::record::Record;

mod backends;
pub mod bundle;
pub mod care;
mod far;
mod format;
pub mod io;
mod keys;
mod locks;
mod names;
mod open;
mod problems;
pub mod records;
mod rules;
mod small;
mod url;

pub use backends::backend::{Change, Listed, Mark, Next, ReadResult, StoreBackend};
pub use backends::directory::DirectoryBackend;
pub use backends::files;
pub use backends::memory::MemoryBackend;
pub use backends::trust::{check as is_private, distrust};
pub use far::{ASKING, BEFORE_A_RACE, Far, Right};
pub use format::alphabet;
pub use keys::signing::{KeyError, PublicKey, SecretKey};
pub use keys::{minisign, trusted};
pub use locks::holder::Holder;
pub use locks::lock::Flight;
pub use names::{Kind, Place};
pub use open::{Opened, default_address, default_root, near_root, open_as_named, open_default, open_or_memory};
pub use problems::{HasKey, hold_problems_to_keys};
pub use rules::Store;
pub use url::{Address, Opener, decoded, register};

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
    /// It could not be read just now.
    Unreadable(String),
    /// Nothing: whoever listed it saw it before it was removed.
    Gone,
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

/// Why a store could not be opened or written. Lookups never give one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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
        source: std::io::Error,
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
    /// No backend is known for the URL.
    #[error(
        "'{scheme}:' is no place for a store: expected {known}, or a directory (./{scheme}:… where it is called so)"
    )]
    UnknownScheme {
        /// The URL's scheme.
        scheme: String,
        /// Those there are.
        known: String,
    },
    /// A backend of another crate said no.
    #[error("{title}: {why}")]
    Backend {
        /// Where it is, [`StoreBackend::title`].
        title: String,
        /// What it said.
        why: String,
    },
    /// The store takes bundles of trusted keys alone.
    #[error("{why}: this store takes bundles alone that a key it trusts has signed (warplap store trust)")]
    Unsigned {
        /// What is wrong with this one.
        why: String,
    },
    /// A bundle has expired, or is older than one that was taken before.
    #[error("the bundle is out of date: {why}; nothing was imported")]
    OutOfDate {
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// A record from elsewhere says that another problem than its key's was raced.
    #[error(
        "a record of {} says that it was raced for {}, which has another key: it is not taken",
        brief(key),
        brief(problem)
    )]
    OtherProblem {
        /// The key's text.
        key: String,
        /// The problem's.
        problem: String,
    },
    /// What was to be kept has no place or no form here.
    #[error("this cannot be stored: {0}")]
    Invalid(String),
}

impl StoreError {
    pub(crate) fn io(doing: &'static str, path: &Path, source: std::io::Error) -> Self {
        StoreError::Io { doing, path: path.to_path_buf(), source }
    }
}

/// A record from its JSON, sound and in no newer form, or why it is none.
pub fn read_record(text: &str) -> Result<Record, String> {
    format::file::parse(text).map_err(|checked| match checked {
        Checked::Newer(schema) => format!("a newer warplap wrote it (form {schema})"),
        Checked::Damaged(why) => why,
        other => format!("{other:?}"),
    })
}

/// The folder name of a device from its hard fingerprint.
pub(crate) fn slug_of(hard: &BTreeMap<String, String>) -> String {
    Fingerprint { hard: hard.clone(), soft: BTreeMap::new(), libraries: BTreeMap::new() }.slug()
}
