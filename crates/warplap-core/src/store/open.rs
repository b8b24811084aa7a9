//! Opening: the environment comes in; a store that works goes out, in memory where no directory can be trusted or written.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::trust::env_is_ours;
use super::{DirectoryStore, MemoryStore, Store, StoreError};

/// A store that works, and what there is to say about it.
pub struct Opened {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Why it is in memory only, where it is. Already given to `tracing::warn!` once.
    pub warning: Option<String>,
}

/// Where the store lives: `WARPLAP_STORE`, or `warplap` in the user's cache directory. `None` when neither is known.
/// The environment is not listened to in a program that runs with another user's rights.
pub fn default_root() -> Option<PathBuf> {
    if !env_is_ours() {
        return None;
    }
    root_from(|name| std::env::var_os(name).filter(|v| !v.is_empty()))
}

fn root_from(env: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(named) = env("WARPLAP_STORE") {
        return std::path::absolute(PathBuf::from(named)).ok();
    }
    // The XDG rules say that a relative path is to be ignored.
    let absolute = |name| env(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let caches = if cfg!(target_os = "macos") {
        absolute("HOME").map(|home| home.join("Library/Caches"))
    } else if cfg!(windows) {
        absolute("LOCALAPPDATA")
    } else {
        absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))
    };
    caches.map(|caches| caches.join("warplap"))
}

/// The store at the default root.
pub fn open_default() -> Result<DirectoryStore, StoreError> {
    DirectoryStore::open(&default_root().ok_or(StoreError::NoHome)?)
}

/// The store at `root` (the default root with `None`), or one in memory with one warning.
pub fn open_or_memory(root: Option<&Path>) -> Opened {
    let opened = match root {
        Some(root) => DirectoryStore::open(root),
        None => open_default(),
    };
    match opened {
        Ok(store) => Opened { store: Arc::new(store), warning: None },
        Err(e) => {
            let warning = format!("results are kept in memory only: {e}");
            tracing::warn!("{warning}");
            Opened { store: Arc::new(MemoryStore::new()), warning: Some(warning) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(vars: &[(&str, &str)]) -> Option<PathBuf> {
        root_from(|name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v)))
    }

    #[test]
    #[cfg(all(unix, not(target_os = "macos")))]
    fn the_store_lives_where_the_user_says_then_in_the_users_caches_never_in_tmp() {
        let all = [("WARPLAP_STORE", "/s"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(root(&all), Some("/s".into()));
        assert_eq!(root(&all[1..]), Some("/x/warplap".into()));
        assert_eq!(root(&all[2..]), Some("/h/.cache/warplap".into()));
        assert_eq!(root(&[("XDG_CACHE_HOME", "relative"), ("HOME", "/h")]), Some("/h/.cache/warplap".into()));
        assert_eq!(root(&[]), None);
    }

    #[test]
    fn without_a_usable_directory_there_is_memory_and_one_reason() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let opened = open_or_memory(Some(&file));
        assert_eq!(opened.store.place(), "memory");
        assert!(opened.warning.unwrap().contains("not a directory"));
    }
}
