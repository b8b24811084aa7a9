//! A lock for file systems without locks: whoever creates the lease file has it. The file names its holder, and the
//! holder keeps touching it, so that a dead one is noticed: at once on the same machine, after a minute of silence on
//! another.

use std::fs::{self, FileTimes};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant, SystemTime};

use crate::backends::files::Files;
use crate::backends::whole::fresh;
use crate::locks::lock::pause;

/// A holder that has not touched its lease for this long, as seen by the one who waits, is dead.
const SILENCE: Duration = Duration::from_secs(60);
const HEARTBEAT: Duration = Duration::from_secs(5);

/// A held lease.
pub(crate) struct Lease {
    path: PathBuf,
    token: String,
    files: Files,
    holder: u32,
    _heart: Sender<()>,
}

impl Lease {
    /// The lease beside a lock file.
    pub(crate) fn beside(path: &Path) -> PathBuf {
        path.with_added_extension("lease")
    }

    /// Takes the lease beside the lock file `path`, waiting until `until`.
    pub(crate) fn take(files: &Files, path: &Path, until: Option<Instant>) -> io::Result<Option<Lease>> {
        let path = Lease::beside(path);
        let token = format!("{}\n{:016x}\n", own_name(), fresh());
        let mut wait = Duration::from_millis(1);
        let mut watched: Option<(String, Option<SystemTime>, Instant)> = None;
        loop {
            match create(files, &path, &token) {
                Ok(()) => return Ok(Some(Lease::beating(files, path, token)?)),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
            let theirs = match said(&path) {
                Ok(theirs) => theirs,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                // Nobody can tell whose it is: as one that is half written, it ends by silence.
                Err(_) => String::new(),
            };
            let touched = fs::metadata(&path).and_then(|m| m.modified()).ok();
            // Silence is timed by our own clock against changes of theirs: the two clocks need not agree.
            let silent = match &watched {
                Some((token, at, since)) if *token == theirs && *at == touched => since.elapsed() > SILENCE,
                _ => {
                    watched = Some((theirs.clone(), touched, Instant::now()));
                    false
                }
            };
            let evicted = (silent || is_dead(&theirs)) && evict(files, &path, &theirs)?;
            if !evicted && !pause(&mut wait, until) {
                return Ok(None);
            }
        }
    }

    fn beating(files: &Files, path: PathBuf, token: String) -> io::Result<Lease> {
        let (stop, stopped) = mpsc::channel::<()>();
        let beat = path.clone();
        std::thread::Builder::new().name("warplap-lease".into()).spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(HEARTBEAT) {
                let now = FileTimes::new().set_modified(SystemTime::now());
                let _ = fs::OpenOptions::new().write(true).open(&beat).and_then(|f| f.set_times(now));
            }
        })?;
        Ok(Lease { path, token, files: files.clone(), holder: std::process::id(), _heart: stop })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Not ours any more after an eviction, nor in a forked child.
        if self.holder == std::process::id() && fs::read_to_string(&self.path).is_ok_and(|t| t == self.token) {
            let _ = self.files.remove(&self.path);
        }
    }
}

/// Creates the lease. Until its token stands in it, it is nobody's and only silence can end it.
fn create(files: &Files, path: &Path, token: &str) -> io::Result<()> {
    let mut file = files.create(path)?;
    files.write(&mut file, path, token.as_bytes()).inspect_err(|_| {
        let _ = files.remove(path);
    })
}

/// What stands in a lease: what is no text is nobody's name, and a text all the same.
fn said(path: &Path) -> io::Result<String> {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Removes a dead holder's lease; whether it is gone. One evicts at a time and looks again first: the lease may have a
/// new holder by now.
fn evict(files: &Files, path: &Path, dead: &str) -> io::Result<bool> {
    let gate = path.with_added_extension("evict");
    match files.create(&gate) {
        Ok(_) => {
            let same = said(path).unwrap_or_default() == dead;
            let gone = !same || files.remove(path).is_ok();
            files.remove(&gate).map(|()| gone)
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            // An evictor needs microseconds: a gate that stays was left by one that was killed in between.
            let age = fs::metadata(&gate).and_then(|m| m.modified()).map(|t| t.elapsed().unwrap_or_default());
            if age.is_ok_and(|age| age > SILENCE) {
                let _ = files.remove(&gate);
            }
            std::thread::sleep(Duration::from_millis(1));
            Ok(false)
        }
        Err(e) => Err(e),
    }
}

/// Machine, boot, process and when it started: no other process ever has the same.
pub(crate) fn own_name() -> String {
    let pid = std::process::id();
    format!("{} {pid} {}", boot(), started(pid).unwrap_or_default())
}

/// Whether a token names a process of this machine that is gone. A half-written token is nobody's yet.
fn is_dead(token: &str) -> bool {
    named(token).is_some_and(|name| name.here && !name.lives())
}

/// A process by the name it gave itself.
pub(crate) struct Name<'t> {
    pub(crate) pid: u32,
    /// Whether it is one of this machine's.
    pub(crate) here: bool,
    start: &'t str,
}

impl Name<'_> {
    /// Whether it still runs, where it is one of this machine's.
    pub(crate) fn lives(&self) -> bool {
        started(self.pid).as_deref() == Some(self.start)
    }
}

/// Whose name a text begins with.
pub(crate) fn named(text: &str) -> Option<Name<'_>> {
    let mut words = text.split_whitespace();
    let (boot_id, pid, start) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
    Some(Name { pid, here: boot_id != "-" && boot_id == boot(), start })
}

/// This machine since it was started, and the space of its process numbers.
pub(crate) fn boot() -> String {
    let read = |path: &str| fs::read_to_string(path).map(|t| t.trim().to_string()).ok().filter(|t| !t.is_empty());
    let Some(id) = read("/proc/sys/kernel/random/boot_id") else {
        return "-".into();
    };
    // Containers share the boot but not the process numbers.
    let space = fs::read_link("/proc/self/ns/pid").map(|p| p.to_string_lossy().into_owned()).unwrap_or_default();
    format!("{id}/{space}")
}

/// When a process started, in the kernel's ticks; `None` when there is no such process.
pub(crate) fn started(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = &stat[stat.rfind(')')? + 1..];
    let mut fields = after_name.split_whitespace();
    // A zombie runs no more.
    (fields.next()? != "Z").then(|| fields.nth(18).map(str::to_string)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Option<Instant> {
        Some(Instant::now() + Duration::from_millis(30))
    }

    #[test]
    fn a_living_holder_keeps_its_lease_and_a_dropped_one_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key.flight");
        let lease = Lease::take(&Files::default(), &path, None).unwrap().unwrap();
        assert!(Lease::take(&Files::default(), &path, soon()).unwrap().is_none());
        drop(lease);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(Lease::take(&Files::default(), &path, soon()).unwrap().is_some());
    }

    #[test]
    fn a_dead_holder_on_this_machine_is_evicted_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key.flight");
        let lease = path.with_added_extension("lease");
        // A process that has ended, and one that lives under a number used before.
        for dead in [format!("{} 4194303 77\nx\n", boot()), format!("{} {} 1\nx\n", boot(), std::process::id())] {
            fs::write(&lease, dead).unwrap();
            assert!(Lease::take(&Files::default(), &path, soon()).unwrap().is_some());
        }
        fs::write(&lease, "another-machine 1 1\nx\n").unwrap();
        assert!(Lease::take(&Files::default(), &path, soon()).unwrap().is_none());
    }

    #[test]
    fn what_nobody_can_read_in_a_leases_place_is_waited_for_no_longer_than_asked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key.flight");
        let lease = path.with_added_extension("lease");
        fs::write(&lease, [0xff, 0xac, b'\n']).unwrap();
        assert!(Lease::take(&Files::default(), &path, soon()).unwrap().is_none());
        fs::remove_file(&lease).unwrap();
        fs::create_dir(&lease).unwrap();
        assert!(Lease::take(&Files::default(), &path, soon()).unwrap().is_none());
    }

    #[test]
    fn among_many_threads_one_holds_the_lease_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key.flight");
        let inside = std::sync::atomic::AtomicU32::new(0);
        fs::write(path.with_added_extension("lease"), format!("{} 4194303 77\nx\n", boot())).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        let lease = Lease::take(&Files::default(), &path, None).unwrap().unwrap();
                        assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        drop(lease);
                    }
                });
            }
        });
    }
}
