//! The backend in a directory: a file a document. Readers take no lock; writers of one document take turns.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::StoreError;
use crate::backends::backend::ReadResult;
use crate::backends::files::{Files, ReadError};
use crate::backends::trust;
use crate::backends::whole::{Whole, fresh};
use crate::format::sealed::{readable, seal, unseal};
use crate::locks::lock::Flight;
use crate::names::{Kind, MAX_SMALL, Place};

/// The directory of records below the root.
const RECORDS: &str = "records-v1";
/// The directory of missed keys.
const MISSES: &str = "misses-v1";
/// The directory of notes on devices.
const DEVICES: &str = "devices-v1";
/// The directory of locks.
pub(crate) const LOCKS: &str = "locks-v1";

/// How long a writer of the store's own file, or one who removes a document, waits for others.
pub(crate) const WRITE_WAIT: Duration = Duration::from_secs(30);

/// A backend in a directory of the user's own.
pub struct DirectoryBackend {
    pub(crate) root: PathBuf,
    pub(crate) id: String,
    pub(crate) whole: Whole,
}

#[derive(Serialize, Deserialize)]
struct Identity {
    id: String,
}

impl DirectoryBackend {
    /// Opens the backend at `root`, creating it where there is none. Refuses a place somebody else could write to.
    pub fn open(root: &Path) -> Result<Self, StoreError> {
        Self::open_with(root, Files::default())
    }

    /// Opens a backend on a file system with a test's hook in it.
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
        let mut backend = DirectoryBackend { root, id: String::new(), whole };
        backend.id = backend.identify();
        Ok(backend)
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn identity_path(&self) -> PathBuf {
        self.root.join("store.json")
    }

    /// The id in the directory; a new one where there is none. Where it cannot be kept, it lasts as long as this
    /// process.
    fn identify(&self) -> String {
        self.read_identity().unwrap_or_else(|_| self.keep_identity(&format!("{:016x}", fresh())))
    }

    /// The id in the directory, or what is wrong with what is there.
    fn read_identity(&self) -> Result<String, Option<String>> {
        let why = match self.whole.files.read(&self.identity_path(), MAX_SMALL) {
            Ok(bytes) => match unseal("store", &bytes).map(serde_json::from_str::<Identity>) {
                Ok(Ok(who)) if who.id.len() == 16 && who.id.bytes().all(|b| b.is_ascii_hexdigit()) => {
                    return Ok(who.id);
                }
                Ok(_) => "it does not name a store".to_string(),
                Err(why) => why.to_string(),
            },
            Err(ReadError::Io(_)) => return Err(None),
            Err(ReadError::Bad(why)) => why,
        };
        Err(Some(why))
    }

    /// Keeps `id` as this store's, unless somebody else was first; the id that is kept.
    fn keep_identity(&self, id: &str) -> String {
        let path = self.identity_path();
        // Without the lock (nothing can be written here) nothing is kept either.
        let Ok(_lock) = self.lock_file(&self.root.join(LOCKS).join("store.write"), WRITE_WAIT) else {
            return id.into();
        };
        match self.read_identity() {
            Ok(first) => return first,
            Err(Some(why)) => {
                let aside = self.move_aside(&path).map(|aside| format!("set aside as {}", aside.display()));
                let became = aside.unwrap_or_else(|e| format!("it could not be set aside: {e}"));
                tracing::warn!("store: {}: {why}; {became}", path.display());
            }
            Err(None) => {}
        }
        if let Ok(body) = readable(&Identity { id: id.to_string() }) {
            let _ = self.whole.write(&self.root, &path, seal("store", &body).as_bytes());
        }
        id.to_string()
    }

    /// The file of a place: `<kind>/<device>/<name>.json`.
    pub(crate) fn file(&self, at: &Place) -> PathBuf {
        self.root.join(folder(at.kind())).join(at.device()).join(format!("{}.json", at.name()))
    }

    /// Waits for the other writers of a place.
    pub(crate) fn write_lock(&self, at: &Place, wait: Duration) -> Result<Flight, StoreError> {
        self.lock_file(&self.lock_path(at, "write"), wait)
    }

    /// The lock file of a place for one purpose.
    pub(crate) fn lock_path(&self, at: &Place, purpose: &str) -> PathBuf {
        // A record and the miss of its key have one name.
        let kind = if at.kind() == Kind::Miss { "miss." } else { "" };
        self.root.join(LOCKS).join(format!("{}.{}.{kind}{purpose}", at.device(), at.name().replace('/', ".")))
    }

    /// Takes a lock file, creating the directory for it.
    fn lock_file(&self, path: &Path, wait: Duration) -> Result<Flight, StoreError> {
        match self.shared(path, Some(Instant::now() + wait))? {
            Some(flight) => Ok(flight),
            None => Err(StoreError::Busy { path: path.to_path_buf() }),
        }
    }

    /// Takes a lock file until an instant, creating the directory for it. `Ok(None)`: somebody else has it.
    pub(crate) fn shared(&self, path: &Path, until: Option<Instant>) -> Result<Option<Flight>, StoreError> {
        let taken = match Flight::shared(&self.whole.files, path, until) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => self
                .whole
                .make_dirs(&self.root, &self.root.join(LOCKS))
                .and_then(|()| Flight::shared(&self.whole.files, path, until)),
            other => other,
        };
        taken.map_err(|e| StoreError::io("locking", path, e))
    }

    /// What stands at a place.
    pub(crate) fn read(&self, at: &Place) -> Result<ReadResult, StoreError> {
        let path = self.file(at);
        match self.whole.files.read(&path, at.kind().limit()) {
            Ok(bytes) => Ok(ReadResult::Bytes(bytes)),
            Err(ReadError::Bad(why)) => Ok(ReadResult::Unfit(why)),
            Err(ReadError::Io(e)) if e.kind() == io::ErrorKind::NotFound => Ok(ReadResult::Nothing),
            Err(ReadError::Io(e)) => Err(StoreError::io("reading", &path, e)),
        }
    }

    /// Keeps the id where it is not: the directory was deleted underneath, or could not be written at first.
    pub(crate) fn settle_identity(&self) {
        if !self.identity_path().exists() && self.root.exists() {
            self.keep_identity(&self.id);
        }
    }

    /// Renames a file to `<name>.damaged-<seconds>-<n>`.
    pub(crate) fn move_aside(&self, path: &Path) -> io::Result<PathBuf> {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let free = (0..10_000)
            .map(|n| path.with_added_extension(format!("damaged-{seconds}-{n}")))
            .find(|aside| std::fs::symlink_metadata(aside).is_err())
            .ok_or(io::ErrorKind::AlreadyExists)?;
        self.whole.files.rename(path, &free)?;
        Ok(free)
    }
}

/// The directory of one kind below the root.
pub(crate) fn folder(kind: Kind) -> &'static str {
    match kind {
        Kind::Record => RECORDS,
        Kind::Miss => MISSES,
        Kind::Note => DEVICES,
    }
}

impl std::fmt::Debug for DirectoryBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DirectoryShelf({})", self.root.display())
    }
}
