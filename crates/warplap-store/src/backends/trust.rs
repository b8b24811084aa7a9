//! Who may have written here: a directory comes in; nothing, or the reason to refuse it, goes out.
//!
//! Only the user (or root) may be able to change the store, its files, and every directory on the way to it: whoever
//! can write to one of these chooses the kernels that run.

use std::fs::Metadata;
use std::path::{Path, PathBuf};

use crate::StoreError;

/// Why a file or directory could have been written by somebody else; `None` when it could not.
#[cfg(unix)]
pub fn distrust(meta: &Metadata) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let own = rustix::process::geteuid().as_raw();
    if meta.uid() != own && meta.uid() != 0 {
        return Some(format!("it belongs to user {}, not to user {own}", meta.uid()));
    }
    (strangers(meta) != 0).then(|| format!("others may write to it (mode {:04o})", mode(meta)))
}

/// The bits of a mode that let somebody else write: not those of a group that the user is alone in.
#[cfg(unix)]
fn strangers(meta: &Metadata) -> u32 {
    use std::os::unix::fs::MetadataExt;
    let open = mode(meta) & 0o022;
    let own = rustix::process::geteuid().as_raw();
    if open == 0o020 && crate::backends::group::is_private(meta.gid(), own) { 0 } else { open }
}

/// Elsewhere the user's own directories are private by default.
#[cfg(not(unix))]
pub fn distrust(_: &Metadata) -> Option<String> {
    None
}

/// Checks a store's root and every directory on the way to it. The root itself may be missing: `Ok(false)`.
#[cfg(unix)]
pub fn check(root: &Path) -> Result<bool, StoreError> {
    let refuse = |path: &Path, why: String, remedy: &str| {
        Err(StoreError::Untrusted { path: path.to_path_buf(), why, remedy: remedy.to_string() })
    };
    let Some(parent) = root.parent() else {
        return refuse(root, "it is the root of the file system".into(), "name a directory below your home");
    };
    walk(parent)?;
    match std::fs::metadata(parent) {
        Ok(meta) if mode(&meta) & 0o002 != 0 => {
            let why = format!("everyone may write to it (mode {:04o})", mode(&meta));
            return refuse(parent, why, "keep the store below your home, not in a shared place such as /tmp");
        }
        _ => {}
    }
    let meta = match std::fs::symlink_metadata(root) {
        Ok(meta) => meta,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(StoreError::io("looking at", root, e)),
    };
    if meta.is_symlink() {
        return refuse(root, "it is a symbolic link".into(), "name the directory it points to");
    }
    if !meta.is_dir() {
        return refuse(root, "it is not a directory".into(), "move it away, or name another directory");
    }
    if let Some(why) = distrust(&meta) {
        return refuse(root, why, &format!("make it yours alone: chown $(id -u) {0} && chmod 700 {0}", root.display()));
    }
    Ok(true)
}

/// Elsewhere only the kind is checked.
#[cfg(not(unix))]
pub fn check(root: &Path) -> Result<bool, StoreError> {
    Ok(root.is_dir())
}

/// Walks to `end` as the kernel would, links included, and checks each directory it passes.
#[cfg(unix)]
fn walk(end: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::MetadataExt;
    use std::path::Component;
    let own = rustix::process::geteuid().as_raw();
    let refuse = |path: &Path, why: String| {
        let remedy = format!("chmod go-w {}, or keep the store elsewhere below your home", path.display());
        Err(StoreError::Untrusted { path: path.to_path_buf(), why, remedy })
    };
    let mut at = PathBuf::from("/");
    let mut todo: Vec<PathBuf> = parts(end);
    let mut links = 0;
    while let Some(part) = todo.pop() {
        match part.components().next() {
            Some(Component::ParentDir) => {
                at.pop();
                continue;
            }
            Some(Component::Normal(name)) => at.push(name),
            _ => continue,
        }
        let meta = match std::fs::symlink_metadata(&at) {
            Ok(meta) => meta,
            // What is not there yet will be made by us, below a directory that has been checked.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(StoreError::io("looking at", &at, e)),
        };
        if meta.uid() != own && meta.uid() != 0 {
            return refuse(&at, format!("it belongs to user {}, not to user {own}", meta.uid()));
        }
        if meta.is_symlink() {
            links += 1;
            let target = std::fs::read_link(&at).map_err(|e| StoreError::io("following", &at, e))?;
            if links > 40 {
                return refuse(&at, "too many links on the way".into());
            }
            if std::fs::metadata(&at).is_err() {
                return refuse(&at, "it is a symbolic link to nowhere".into());
            }
            if target.is_absolute() {
                at = PathBuf::from("/");
            } else {
                at.pop();
            }
            todo.extend(parts(&target));
            continue;
        }
        if !meta.is_dir() {
            return refuse(&at, "it is not a directory".into());
        }
        // In a sticky directory nobody can replace what belongs to us, and the next step checks that it does.
        if strangers(&meta) != 0 && mode(&meta) & 0o1000 == 0 {
            let who = if mode(&meta) & 0o002 != 0 { "everyone" } else { "its group" };
            return refuse(&at, format!("{who} may write to it (mode {:04o})", mode(&meta)));
        }
    }
    Ok(())
}

/// The parts of a path, last first.
#[cfg(unix)]
fn parts(path: &Path) -> Vec<PathBuf> {
    path.components().rev().map(|c| PathBuf::from(c.as_os_str())).collect()
}

#[cfg(unix)]
fn mode(meta: &Metadata) -> u32 {
    std::os::unix::fs::MetadataExt::mode(meta) & 0o7777
}
