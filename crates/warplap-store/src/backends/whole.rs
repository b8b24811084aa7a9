//! Making a file whole: bytes and a path come in; afterwards the path holds all of them, durably, or what it held
//! before.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::backends::files::Files;
use crate::care::spread;

/// How a file's directory entry is named while it is written. Readers and listings pass over names with a leading dot.
pub(crate) const TEMP_PREFIX: &str = ".tmp-";

/// Files synced at once.
const SYNCERS: usize = 32;

/// Writes whole files under one root and remembers which directories are known to be durable.
#[derive(Default)]
pub(crate) struct Whole {
    pub(crate) files: Files,
    // Only ever taken with `try_lock`: in a child made by fork it may be held by a thread that does not exist there.
    durable: Mutex<HashSet<(PathBuf, u64, u64)>>,
}

impl Whole {
    pub(crate) fn new(files: Files) -> Self {
        Whole { files, durable: Mutex::default() }
    }

    /// Puts `bytes` at `path`, creating the directories down from `root`.
    pub(crate) fn write(&self, root: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.write_all(root, &[(path.to_path_buf(), bytes)])
    }

    /// Puts several files in their places. On an error some may be there already, each of them whole.
    ///
    /// All are written before the first is synced, so that syncing can be done for all at once.
    pub(crate) fn write_all<B: AsRef<[u8]>>(&self, root: &Path, all: &[(PathBuf, B)]) -> io::Result<()> {
        let mut staged = VecDeque::with_capacity(all.len());
        let placed = self.place_all(root, all, &mut staged);
        if placed.is_err() {
            staged.iter().for_each(|(temp, _)| drop(self.files.remove(temp)));
        }
        placed
    }

    fn place_all<B: AsRef<[u8]>>(
        &self,
        root: &Path,
        all: &[(PathBuf, B)],
        staged: &mut VecDeque<(PathBuf, File)>,
    ) -> io::Result<()> {
        for (path, bytes) in all {
            let dir = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
            staged.push_back(match self.stage(dir, bytes.as_ref()) {
                // The directories are missing at the first put, and again after someone deleted them.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    self.make_dirs(root, dir)?;
                    self.stage(dir, bytes.as_ref())?
                }
                other => other?,
            });
        }
        self.sync_all(staged)?;
        let dirs: BTreeSet<&Path> = all.iter().filter_map(|(path, _)| path.parent()).collect();
        dirs.iter().try_for_each(|dir| self.make_durable(root, dir))?;
        for (path, _) in all {
            self.files.rename(&staged[0].0, path)?;
            staged.pop_front();
        }
        dirs.iter().try_for_each(|dir| self.files.sync_dir(dir))
    }

    /// Puts `bytes` at `path` whole but not durably: for what costs nothing to lose.
    pub(crate) fn write_lightly(&self, root: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let dir = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        self.make_dirs(root, dir)?;
        let (temp, _) = self.stage(dir, bytes)?;
        self.files.rename(&temp, path).inspect_err(|_| {
            let _ = self.files.remove(&temp);
        })
    }

    /// Syncs files at once: the disk takes many in one go (128 files on a busy ext4: 5 ms each in turn, 0.2 ms
    /// together).
    fn sync_all(&self, staged: &VecDeque<(PathBuf, File)>) -> io::Result<()> {
        let failed = Mutex::new(None);
        spread(staged.len(), staged.len().min(SYNCERS), |n| {
            let (temp, file) = &staged[n];
            if let Err(e) = self.files.sync(file, temp) {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(e);
            }
        });
        failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    fn stage(&self, dir: &Path, bytes: &[u8]) -> io::Result<(PathBuf, File)> {
        let temp = dir.join(format!("{TEMP_PREFIX}{:x}-{:016x}", std::process::id(), fresh()));
        let mut file = self.files.create(&temp)?;
        match self.files.write(&mut file, &temp, bytes) {
            Ok(()) => Ok((temp, file)),
            Err(e) => {
                let _ = self.files.remove(&temp);
                Err(e)
            }
        }
    }

    /// Creates `root` and the directories from there down to `dir`, 0700 each.
    pub(crate) fn make_dirs(&self, root: &Path, dir: &Path) -> io::Result<()> {
        if dir.is_dir() {
            return Ok(());
        }
        if let Some(parent) = dir.parent() {
            self.make_dirs(root, parent)?;
        }
        match self.files.create_dir(dir) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
            // Below the root, `make_durable` sees to it.
            Ok(()) if !dir.starts_with(root) => dir.parent().map_or(Ok(()), |parent| self.files.sync_dir(parent)),
            other => other,
        }
    }

    /// Makes the entries of `dir` and of its parents up to `root` durable, once for each directory. One that was found
    /// rather than made counts too: whoever made it may have been killed before it was durable.
    fn make_durable(&self, root: &Path, dir: &Path) -> io::Result<()> {
        let id = identity(dir)?;
        let known = (dir.to_path_buf(), id.0, id.1);
        if self.durable.try_lock().is_ok_and(|set| set.contains(&known)) {
            return Ok(());
        }
        let mut at = dir;
        while let Some(parent) = at.parent() {
            // The root's own entry stands in a directory that may not be ours to open for syncing.
            match self.files.sync_dir(parent) {
                Err(e) if at == root && e.kind() == io::ErrorKind::PermissionDenied => {}
                other => other?,
            }
            if at == root {
                break;
            }
            at = parent;
        }
        if let Ok(mut set) = self.durable.try_lock() {
            set.insert(known);
        }
        Ok(())
    }
}

/// A number no other thread or process draws at the same time.
pub(crate) fn fresh() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // A forked child inherits the generator's state, so the process and the time are mixed in.
    let mut hasher = std::hash::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.write_u64(fastrand::u64(..));
    if let Ok(now) = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
        hasher.write_u128(now.as_nanos());
    }
    hasher.finish()
}

#[cfg(unix)]
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata(path)?;
    Ok((meta.dev(), meta.ino()))
}

#[cfg(not(unix))]
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::metadata(path).map(|_| (0, 0))
}
