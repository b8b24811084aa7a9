//! Passing folders: nobody's but the user's, gone with the object that made them. Those of processes that were killed
//! are removed when the next one is made.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::distrust;
use crate::locks::lease::{boot, started};

/// A folder that goes with this object.
#[derive(Debug)]
pub struct ScratchDir {
    path: PathBuf,
    holder: u32,
}

impl ScratchDir {
    /// Makes a folder in the system's directory for such. It is 0700 from its first moment.
    pub fn new() -> io::Result<ScratchDir> {
        ScratchDir::within(&std::env::temp_dir())
    }

    /// Makes a folder in a directory, and removes those there whose processes are gone.
    pub fn within(directory: &Path) -> io::Result<ScratchDir> {
        sweep(directory);
        let holder = std::process::id();
        let name = format!("{}{holder}-{}-{:x}", prefix(), started(holder).unwrap_or_default(), fastrand::u64(..));
        let path = directory.join(name);
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        // Fails where the name is taken: nothing that somebody else made is ever used.
        builder.create(&path)?;
        Ok(ScratchDir { path, holder })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // A forked child leaves it to its parent.
        if self.holder == std::process::id() {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// How the folders of this machine's processes are called. Containers share directories, but not process numbers.
fn prefix() -> String {
    format!("warplap-{}-", &blake3::hash(boot().as_bytes()).to_hex()[..8])
}

/// Removes the user's own folders whose processes are gone.
fn sweep(directory: &Path) {
    let prefix = prefix();
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some((pid, rest)) = name.to_str().and_then(|n| n.strip_prefix(&prefix)?.split_once('-')) else { continue };
        let (Ok(pid), Some((start, _))) = (pid.parse::<u32>(), rest.split_once('-')) else { continue };
        // Where processes cannot be looked at, nobody is known to be gone.
        let gone = !start.is_empty() && started(pid).as_deref() != Some(start);
        let ours = || fs::symlink_metadata(entry.path()).is_ok_and(|m| m.is_dir() && distrust(&m).is_none());
        if gone && ours() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_is_private_and_goes_and_what_the_dead_left_is_swept() {
        let dir = tempfile::tempdir().unwrap();
        let dead = dir.path().join(format!("{}4194303-77-abc", prefix()));
        let elsewhere = dir.path().join("warplap-00000000-4194303-77-abc");
        for folder in [&dead, &elsewhere] {
            fs::create_dir_all(folder.join("deep")).unwrap();
            fs::write(folder.join("deep/file"), "x").unwrap();
            fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
        }
        let one = ScratchDir::within(dir.path()).unwrap();
        assert_eq!(fs::metadata(one.path()).unwrap().permissions().mode() & 0o777, 0o700);
        let two = ScratchDir::within(dir.path()).unwrap();
        assert!(one.path().exists() && two.path().exists() && elsewhere.exists() && !dead.exists());
        drop((one, two));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
