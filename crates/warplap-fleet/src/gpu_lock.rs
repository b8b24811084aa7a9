//! The lock on a card: its name comes in, a guard goes out, and no other worker of this user races on that card until
//! the guard is dropped or its holder dies.
//!
//! An engine places one job a card, but several engines, or several people's sessions of one user, may share a machine.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use warplap_core::environment;
use warplap_core::store::is_private;

/// The right to race on a card, alone.
#[must_use = "dropped at once, it protects nothing"]
#[derive(Debug)]
pub struct GpuLock {
    // The kernel frees the lock with the file.
    _file: File,
}

impl GpuLock {
    /// Takes the lock on a card, waiting until it is free or `wait` is over (then `None`).
    pub fn take(dir: &Path, card: &str, wait: Duration) -> io::Result<Option<GpuLock>> {
        let file = open(dir, card)?;
        let until = Instant::now() + wait;
        let mut pause = Duration::from_millis(1);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(GpuLock { _file: file })),
                Err(TryLockError::WouldBlock) if Instant::now() < until => {
                    std::thread::sleep(pause.min(until.saturating_duration_since(Instant::now())));
                    pause = (pause * 2).min(Duration::from_millis(20));
                }
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(e)) => return Err(e),
            }
        }
    }
}

/// The folder of the locks of this user's cards on this machine: in the folder the system keeps for the session, else in
/// the place for temporary files.
pub fn usual_dir() -> PathBuf {
    let session = environment::var("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|p| p.is_absolute() && p.is_dir());
    match session {
        Some(dir) => dir.join("warplap").join("cards"),
        None => std::env::temp_dir().join(format!("warplap-{}", user())).join("cards"),
    }
}

#[cfg(unix)]
fn user() -> String {
    rustix::process::geteuid().as_raw().to_string()
}

#[cfg(not(unix))]
fn user() -> String {
    "user".into()
}

/// The lock file of a card. It stays when the lock is free: who would remove it could take it from under a waiter.
fn open(dir: &Path, card: &str) -> io::Result<File> {
    make(dir)?;
    if let Err(e) = is_private(dir) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, e.to_string()));
    }
    let name: String = card.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' }).collect();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
    }
    options.open(dir.join(format!("{name}.lock")))
}

fn make(dir: &Path) -> io::Result<()> {
    let mut maker = DirBuilder::new();
    maker.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut maker, 0o700);
    maker.create(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_holds_a_card_and_another_card_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("cards");
        let moment = Duration::from_millis(20);
        let held = GpuLock::take(&dir, "GPU-1", moment).unwrap().unwrap();
        assert!(GpuLock::take(&dir, "GPU-1", moment).unwrap().is_none());
        assert!(GpuLock::take(&dir, "GPU-2", moment).unwrap().is_some());
        drop(held);
        assert!(GpuLock::take(&dir, "GPU-1", moment).unwrap().is_some());
        assert!(GpuLock::take(&dir, "../../x", moment).unwrap().is_some());
        assert!(!dir.join("../../x.lock").exists());
    }

    #[test]
    #[cfg(unix)]
    fn a_folder_that_others_may_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("cards");
        make(&dir).unwrap();
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).unwrap();
        let error = GpuLock::take(&dir, "a", Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
    }
}
