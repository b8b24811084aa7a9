//! Locks: a name comes in, a guard goes out, and nobody else has that name until the guard is dropped or its holder
//! dies.
//!
//! Three floors: the kernel's lock on a file (freed at death); where the file system has none, a lease (see `lease`);
//! where nothing can be written, a lock within this process only.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::backends::files::Files;
use crate::locks::holder::Holder;
use crate::locks::lease::{Lease, own_name};

/// Bytes of a holder's name at the most.
const NAME_LIMIT: u64 = 512;

/// The right to tune one key on one device, alone. Dropping it lets the next one in.
#[must_use = "dropped at once, it protects nothing"]
pub struct Flight(Hold);

enum Hold {
    File { _lock: FileLock },
    Lease { _lease: Lease },
    Local { _lock: LocalLock },
    Other { _guard: Box<dyn Send> },
}

impl Flight {
    /// Whether other processes respect it; `false` for a lock within this process only.
    pub fn is_shared(&self) -> bool {
        !matches!(self.0, Hold::Local { .. })
    }

    /// A right that ends when `guard` is dropped, and is respected wherever the backend that gives it is: a session's
    /// lock in a database, a lease on a server.
    pub fn over(guard: impl Send + 'static) -> Flight {
        Flight(Hold::Other { _guard: Box::new(guard) })
    }

    /// The right to a name among the threads of this process, waiting until an instant (for ever with `None`).
    pub fn local(name: &str, until: Option<Instant>) -> Option<Flight> {
        LocalLock::take(name, until).map(|lock| Flight(Hold::Local { _lock: lock }))
    }

    /// Who holds the lock file `path`, as far as it is known.
    pub(crate) fn holder(files: &Files, path: &Path) -> Option<Holder> {
        let said = |path: &Path| Holder::read(str::from_utf8(&files.read(path, NAME_LIMIT).ok()?).ok()?);
        said(path).or_else(|| said(&Lease::beside(path)))
    }

    /// Takes the lock file `path`, waiting until `until` (for ever with `None`). `Ok(None)`: somebody else still has
    /// it.
    pub(crate) fn shared(files: &Files, path: &Path, until: Option<Instant>) -> io::Result<Option<Flight>> {
        match FileLock::take(files, path, until) {
            Err(e) if has_no_locks(&e) => {
                Ok(Lease::take(files, path, until)?.map(|lease| Flight(Hold::Lease { _lease: lease })))
            }
            other => Ok(other?.map(|lock| Flight(Hold::File { _lock: lock }))),
        }
    }
}

impl std::fmt::Debug for Flight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &self.0 {
            Hold::File { .. } => "Flight(file)",
            Hold::Lease { .. } => "Flight(lease)",
            Hold::Local { .. } => "Flight(this process)",
            Hold::Other { .. } => "Flight(the backend's own)",
        })
    }
}

/// Waits a little longer each time, never past the end; `false` when the time is up.
pub(crate) fn pause(wait: &mut Duration, until: Option<Instant>) -> bool {
    let mut this = *wait;
    if let Some(until) = until {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        this = this.min(left);
    }
    std::thread::sleep(this);
    *wait = (*wait * 2).min(Duration::from_millis(20));
    true
}

fn has_no_locks(e: &io::Error) -> bool {
    #[cfg(unix)]
    if e.raw_os_error() == Some(rustix::io::Errno::NOLCK.raw_os_error()) {
        return true;
    }
    e.kind() == io::ErrorKind::Unsupported
}

struct FileLock {
    file: File,
    path: PathBuf,
    files: Files,
    holder: u32,
}

impl FileLock {
    fn take(files: &Files, path: &Path, until: Option<Instant>) -> io::Result<Option<FileLock>> {
        let mut wait = Duration::from_millis(1);
        loop {
            let mut file = files.open_lock(path)?;
            if until.is_none() {
                files.lock(&file, path)?;
            } else if !files.try_lock(&file, path)? {
                if !pause(&mut wait, until) {
                    return Ok(None);
                }
                continue;
            }
            // The last holder removed the file before letting go: a lock on a removed file protects nothing.
            if is_at(&file, path) {
                // Who waits wants to know for whom; a disk that is full keeps nobody from working.
                let _ = file.set_len(0).and_then(|()| files.write(&mut file, path, own_name().as_bytes()));
                let (path, files) = (path.to_path_buf(), files.clone());
                return Ok(Some(FileLock { file, path, files, holder: std::process::id() }));
            }
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // A forked child shares the open file: its copy of this guard must not free the parent's lock.
        if self.holder == std::process::id() {
            let _ = self.files.remove(&self.path);
            let _ = self.file.unlock();
        }
    }
}

#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), std::fs::symlink_metadata(path)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    path.exists()
}

static LOCAL: Mutex<Option<HashSet<String>>> = Mutex::new(None);
static FREED: Condvar = Condvar::new();

/// A lock among the threads of this process.
struct LocalLock(String);

impl LocalLock {
    fn take(name: &str, until: Option<Instant>) -> Option<LocalLock> {
        // With the process in the name, a forked child does not wait for threads that exist in its parent only.
        let name = format!("{}:{name}", std::process::id());
        let mut held = held();
        while held.get_or_insert_default().contains(&name) {
            let left = until.map_or(Duration::from_secs(3600), |u| u.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return None;
            }
            held = FREED.wait_timeout(held, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        held.get_or_insert_default().insert(name.clone());
        Some(LocalLock(name))
    }
}

impl Drop for LocalLock {
    fn drop(&mut self) {
        held().get_or_insert_default().remove(&self.0);
        FREED.notify_all();
    }
}

fn held() -> MutexGuard<'static, Option<HashSet<String>>> {
    LOCAL.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn soon() -> Option<Instant> {
        Some(Instant::now() + Duration::from_millis(20))
    }

    #[test]
    fn a_held_lock_keeps_others_out_and_a_dropped_one_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key.flight");
        let files = Files::default();
        let first = Flight::shared(&files, &path, None).unwrap().unwrap();
        assert!(first.is_shared());
        assert!(Flight::shared(&files, &path, soon()).unwrap().is_none());
        drop(first);
        assert!(!path.exists());
        assert!(Flight::shared(&files, &path, soon()).unwrap().is_some());
        let local = Flight::local("a", None).unwrap();
        assert!(!local.is_shared());
        assert!(Flight::local("a", soon()).is_none());
        assert!(Flight::local("b", soon()).is_some());
        drop(local);
        assert!(Flight::local("a", soon()).is_some());
    }

    #[test]
    fn who_waited_on_a_file_removed_meanwhile_holds_the_one_that_others_see() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key.flight");
        let first = Flight::shared(&Files::default(), &path, None).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| Flight::shared(&Files::default(), &path, None).unwrap());
            std::thread::sleep(Duration::from_millis(100));
            drop(first);
            let second = waiting.join().unwrap();
            assert!(path.exists());
            assert!(Flight::shared(&Files::default(), &path, soon()).unwrap().is_none());
            drop(second);
        });
    }

    #[test]
    fn among_many_threads_one_is_inside_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key.flight");
        let (inside, seen) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for thread in 0..16 {
                let (path, inside, seen) = (&path, &inside, &seen);
                scope.spawn(move || {
                    for round in 0..20 {
                        // Both forms of waiting meet on one lock.
                        let until = (round + thread) % 2 == 0;
                        let until = until.then(|| Instant::now() + Duration::from_secs(60));
                        let guard = Flight::shared(&Files::default(), path, until).unwrap().unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        seen.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(guard);
                    }
                });
            }
        });
        assert_eq!(seen.into_inner(), 320);
    }
}
