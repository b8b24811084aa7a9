//! Listings: a directory of the store comes in; what stands in it goes out, by names and sizes, with no file opened.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::backends::backend::Listed;
use crate::backends::directory::folder;
use crate::backends::whole::TEMP_PREFIX;
use crate::names::{Kind, Place, is_hash, is_op, is_slug};

/// Every document of a kind, sorted by its place.
pub(crate) fn documents(top: &Path, kind: Kind) -> Vec<Listed> {
    if kind == Kind::Note {
        return notes(top);
    }
    let mut all = Vec::new();
    each_op(top, |device, op, dir| {
        // Only the hashes are sorted: comparing whole paths took longer than reading them.
        let mut files: Vec<_> = dir.flatten().filter_map(|e| Some((hash_of(&e)?, e))).collect();
        files.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        all.extend(files.into_iter().filter_map(|(hash, file)| {
            // What is no file is listed too: whoever opens it says so.
            let meta = file.metadata().ok()?;
            Some(listed(Place::filed(kind, device, op, &hash).ok()?, &meta))
        }));
    });
    all
}

fn notes(top: &Path) -> Vec<Listed> {
    let mut all = Vec::new();
    for device in subdirs(top) {
        let named = |(path, meta): (PathBuf, fs::Metadata)| {
            let name = path.file_name()?.to_str()?.strip_suffix(".json")?;
            Some(listed(Place::note(&device, name).ok()?, &meta))
        };
        all.extend(files(&top.join(&device)).into_iter().filter_map(named));
    }
    all.sort_by(|a, b| a.place.cmp(&b.place));
    all
}

fn listed(place: Place, meta: &fs::Metadata) -> Listed {
    Listed { place, bytes: meta.len(), modified: meta.modified().unwrap_or(UNIX_EPOCH) }
}

/// Every file that was set aside, or left behind by a writer that was killed.
pub(crate) fn leftovers(root: &Path) -> Vec<(PathBuf, fs::Metadata)> {
    let mut all = files(root);
    for kind in [Kind::Record, Kind::Miss] {
        each_op(&root.join(folder(kind)), |_, _, dir| {
            // The metadata of a hundred thousand records would take longer than all the rest.
            let odd = dir.flatten().filter(|e| hash_of(e).is_none());
            all.extend(odd.filter_map(|e| Some((e.path(), e.metadata().ok()?))));
        });
    }
    let notes = root.join(folder(Kind::Note));
    for device in subdirs(&notes) {
        all.extend(files(&notes.join(device)));
    }
    all.retain(|(path, _)| damaged_at(path).is_some() || is_temp(path));
    all
}

/// What stands in one directory.
pub(crate) fn files(dir: &Path) -> Vec<(PathBuf, fs::Metadata)> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries.flatten().filter_map(|e| Some((e.path(), e.metadata().ok()?))).collect()
}

/// The names of the directories in a directory, sorted.
pub(crate) fn subdirs(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let is_dir = |e: &fs::DirEntry| e.file_type().is_ok_and(|t| t.is_dir());
    let mut names: Vec<_> = entries.flatten().filter(is_dir).filter_map(|e| e.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

/// When a file was set aside, by its name.
pub(crate) fn damaged_at(path: &Path) -> Option<SystemTime> {
    let name = path.file_name()?.to_str()?;
    let (seconds, n) = name.rsplit_once(".damaged-")?.1.split_once('-')?;
    n.parse::<u32>().ok()?;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds.parse().ok()?))
}

fn each_op(top: &Path, mut each: impl FnMut(&str, &str, fs::ReadDir)) {
    for device in subdirs(top).into_iter().filter(|name| is_slug(name)) {
        for op in subdirs(&top.join(&device)).into_iter().filter(|name| is_op(name)) {
            if let Ok(dir) = fs::read_dir(top.join(&device).join(&op)) {
                each(&device, &op, dir);
            }
        }
    }
}

fn hash_of(entry: &fs::DirEntry) -> Option<String> {
    let name = entry.file_name();
    name.to_str()?.strip_suffix(".json").filter(|hash| is_hash(hash)).map(str::to_string)
}

fn is_temp(path: &Path) -> bool {
    path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with(TEMP_PREFIX))
}
