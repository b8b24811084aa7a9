//! The directory as a backend: what the store asks for, done on files.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::backends::backend::{Change, Listed, Mark, Next, ReadResult, StoreBackend};
use crate::backends::directory::{DirectoryBackend, LOCKS, WRITE_WAIT, folder};
use crate::backends::listing;
use crate::locks::holder::Holder;
use crate::locks::lock::Flight;
use crate::names::{Kind, Place, is_slug};
use crate::{SetAside, StoreError};

/// Devices asked about a name that this one does not have.
const MAX_ELSEWHERE: usize = 64;
/// A writer needs milliseconds: what it wrote an hour ago it will not come back for.
const LEFT_BEHIND: Duration = Duration::from_secs(3600);
/// A file carries the time at which it was written, not the one at which it was put in its place: between the two lie a
/// batch's syncs. What is this much older than a mark is told again.
const OVERLAP: Duration = Duration::from_secs(120);

impl StoreBackend for DirectoryBackend {
    fn id(&self) -> &str {
        &self.id
    }

    fn title(&self) -> String {
        self.root.display().to_string()
    }

    fn get(&self, at: &Place) -> Result<ReadResult, StoreError> {
        self.read(at)
    }

    fn put(&self, at: &Place, wait: Duration, next: &mut Next<'_>) -> Result<(), StoreError> {
        let (lock, bytes) = self.prepare(at, wait, next)?;
        if let Some(bytes) = bytes {
            let path = self.file(at);
            self.whole.write(&self.root, &path, &bytes).map_err(|e| StoreError::io("writing", &path, e))?;
            drop(lock);
            self.settle_identity();
        }
        Ok(())
    }

    fn put_many(
        &self,
        places: &[Place],
        wait: Duration,
        next: &mut dyn FnMut(usize, ReadResult) -> Result<Change, StoreError>,
    ) -> Vec<Result<(), StoreError>> {
        let (mut done, mut locks, mut at, mut files) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        // The places come in their order, so that two who put the same ones never wait for each other.
        for (n, place) in places.iter().enumerate() {
            done.push(self.prepare(place, wait, &mut |result| next(n, result)).map(|(lock, bytes)| {
                locks.push(lock);
                if let Some(bytes) = bytes {
                    at.push(n);
                    files.push((self.file(place), bytes));
                }
            }));
        }
        if let Err(e) = self.whole.write_all(&self.root, &files) {
            // The error belongs to the whole batch; it is told for each.
            for (n, (path, _)) in at.iter().zip(&files) {
                done[*n] = Err(StoreError::io("writing", path, copy(&e)));
            }
        }
        drop(locks);
        self.settle_identity();
        done
    }

    fn delete(&self, at: &Place) -> Result<bool, StoreError> {
        let path = self.file(at);
        let _lock = (at.kind() == Kind::Record).then(|| self.write_lock(at, WRITE_WAIT)).transpose()?;
        match self.whole.files.remove(&path) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
            // A directory that nobody put there this way goes out of the way with all that is in it.
            Err(_) if path.is_dir() => {
                self.move_aside(&path).map(|_| true).map_err(|e| StoreError::io("setting aside", &path, e))
            }
            Err(e) => Err(StoreError::io("removing", &path, e)),
        }
    }

    fn since(&self, kind: Kind, mark: Option<&Mark>) -> Result<(Vec<Listed>, Mark), StoreError> {
        let after = mark.map(time_of).transpose()?;
        let now = SystemTime::now();
        let mut listed = listing::documents(&self.root.join(folder(kind)), kind);
        // The file system's clock counts, which need not be ours; a file from the future must not hide those of today.
        let newest =
            listed.iter().map(|l| l.modified).max().unwrap_or(UNIX_EPOCH).min(now).max(after.unwrap_or(UNIX_EPOCH));
        if let Some(after) = after {
            let from = after.checked_sub(OVERLAP).unwrap_or(UNIX_EPOCH);
            listed.retain(|l| l.modified >= from);
        }
        let nanos = newest.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        Ok((listed, Mark(nanos.to_string())))
    }

    fn lease(&self, at: &Place, wait: Option<Duration>) -> Result<Option<Flight>, StoreError> {
        self.shared(&self.lock_path(at, "flight"), wait.map(|wait| Instant::now() + wait))
    }

    fn holder(&self, at: &Place) -> Option<Holder> {
        Flight::holder(&self.whole.files, &self.lock_path(at, "flight"))
    }

    fn add(&self, at: &Place, document: &dyn Fn() -> Vec<u8>) -> Result<(), StoreError> {
        let path = self.file(at);
        if path.exists() {
            return Ok(());
        }
        self.whole.write_lightly(&self.root, &path, &document()).map_err(|e| StoreError::io("writing", &path, e))
    }

    fn elsewhere(&self, at: &Place) -> Result<Vec<Listed>, StoreError> {
        let devices = listing::subdirs(&self.root.join(folder(at.kind())));
        let others = devices.iter().filter(|name| *name != at.device() && is_slug(name)).take(MAX_ELSEWHERE);
        let listed = |device: &String| {
            let place = at.on(device);
            let meta = fs::symlink_metadata(self.file(&place)).ok()?;
            Some(Listed { place, bytes: meta.len(), modified: meta.modified().unwrap_or(UNIX_EPOCH) })
        };
        Ok(others.filter_map(listed).collect())
    }

    fn path(&self, at: &Place) -> Option<PathBuf> {
        Some(self.file(at))
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
        let gone = |path: &PathBuf| self.whole.files.remove(path).is_ok() || fs::remove_dir(path).is_ok();
        let removed = old.iter().filter(|(path, _)| gone(path)).count();
        for (path, _) in listing::files(&self.root.join(LOCKS)) {
            // Taking a lock that nobody has and letting go of it removes its file.
            if path.extension().is_some_and(|e| e == "flight" || e == "write") {
                drop(Flight::shared(&self.whole.files, &path, Some(Instant::now())));
            }
        }
        removed
    }
}

impl DirectoryBackend {
    /// The write lock of a place, and what is to be written there. What is damaged is out of the way by then.
    fn prepare(
        &self,
        at: &Place,
        wait: Duration,
        next: &mut Next<'_>,
    ) -> Result<(Flight, Option<Vec<u8>>), StoreError> {
        let lock = self.write_lock(at, wait)?;
        let Change { set_aside, put } = next(self.read(at)?)?;
        if set_aside.is_some() {
            let path = self.file(at);
            self.move_aside(&path).map_err(|e| StoreError::io("setting aside", &path, e))?;
        }
        Ok((lock, put))
    }
}

fn time_of(mark: &Mark) -> Result<SystemTime, StoreError> {
    let nanos = mark.0.parse::<u64>().ok().and_then(|n| UNIX_EPOCH.checked_add(Duration::from_nanos(n)));
    nanos.ok_or_else(|| StoreError::Invalid(format!("'{}' is no mark of a directory", crate::names::shorten(&mark.0))))
}

/// The same error again: an `io::Error` cannot be cloned.
fn copy(e: &std::io::Error) -> std::io::Error {
    e.raw_os_error().map_or_else(|| e.kind().into(), std::io::Error::from_raw_os_error)
}
