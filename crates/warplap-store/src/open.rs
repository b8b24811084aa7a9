//! Opening: the environment comes in; a store that works goes out, in memory where no directory can be trusted or
//! written.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::io::environment;
use crate::{Address, Store, StoreError};

/// A store that works, and what there is to say about it.
pub struct Opened {
    /// The store.
    pub store: Store,
    /// Why it is in memory only, where it is. Already given to `tracing::warn!` once.
    pub warning: Option<String>,
}

/// Where the store is when nobody names one: `WARPLAP_STORE` (a directory or a URL), or `warplap` in the user's cache
/// directory. The environment is not listened to in a program that runs with another user's rights.
pub fn default_address() -> Result<Address, StoreError> {
    address_from(environment::var)
}

/// The directory near by of [`default_address`].
pub fn default_root() -> Option<PathBuf> {
    default_address().ok()?.near()
}

fn address_from(env: impl Fn(&str) -> Option<OsString>) -> Result<Address, StoreError> {
    if let Some(named) = env("WARPLAP_STORE") {
        return match Address::of(named)? {
            Address::Directory(path) => {
                let absolute = std::path::absolute(&path).map_err(|e| StoreError::io("finding", &path, e))?;
                Ok(Address::Directory(absolute))
            }
            other => Ok(other),
        };
    }
    near_from(env).map(Address::Directory).ok_or(StoreError::NoHome)
}

/// Where a store in a directory is when nobody names one: `warplap` in the user's cache directory.
pub fn near_root() -> Option<PathBuf> {
    near_from(environment::var)
}

fn near_from(env: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
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

/// The store at the default address.
pub fn open_default() -> Result<Store, StoreError> {
    default_address()?.open()
}

/// The store at a directory or URL (the default address with `None`), or one in memory with one warning.
pub fn open_or_memory(named: Option<&Path>) -> Opened {
    or_memory(open(named))
}

/// As [`open_or_memory`], but an address that nobody can read is an error: whoever wrote it meant a store.
pub fn open_as_named(named: Option<&Path>) -> Result<Opened, StoreError> {
    match open(named) {
        Err(e @ (StoreError::Invalid(_) | StoreError::UnknownScheme { .. })) => Err(e),
        opened => Ok(or_memory(opened)),
    }
}

fn open(named: Option<&Path>) -> Result<Store, StoreError> {
    named.map_or_else(open_default, Store::open)
}

fn or_memory(opened: Result<Store, StoreError>) -> Opened {
    match opened {
        Ok(store) => Opened { store, warning: None },
        Err(e) => {
            let warning = format!("results are kept in memory only: {e}");
            tracing::warn!("{warning}");
            Opened { store: Store::memory(), warning: Some(warning) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(vars: &[(&str, &str)]) -> Option<PathBuf> {
        let address = address_from(|name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v)));
        address.ok()?.directory().map(Path::to_path_buf)
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
        assert_eq!(root(&[("WARPLAP_STORE", "file:///s"), ("HOME", "/h")]), Some("/s".into()));
        assert_eq!(root(&[("WARPLAP_STORE", "memory:"), ("HOME", "/h")]), None);
    }

    #[test]
    fn an_address_that_cannot_be_read_is_an_error_and_a_directory_that_cannot_be_used_is_none() {
        for address in ["memory:x", "nosuch://host/d", "file://host/a"] {
            assert!(open_as_named(Some(Path::new(address))).is_err(), "{address}");
        }
        assert!(open_as_named(Some(Path::new("/dev/null"))).unwrap().warning.is_some());
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
