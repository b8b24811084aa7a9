//! Addresses: a path or a URL comes in, a store goes out. Other crates add schemes of their own.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use crate::names::shorten;
use crate::{Store, StoreError};

/// How the URLs of a scheme are opened. Each is given whole.
#[derive(Clone, Copy, Debug)]
pub struct Opener {
    /// Opens the store.
    pub open: fn(&str) -> Result<Store, StoreError>,
    /// The directory near by that belongs to it, where there is one: compiled kernels are kept there.
    pub near: fn(&str) -> Option<PathBuf>,
}

static OTHERS: RwLock<Vec<(&'static str, Opener)>> = RwLock::new(Vec::new());

/// Where a store is.
#[derive(Clone, Debug)]
pub enum Address {
    /// In a directory: a path, or `file:`.
    Directory(PathBuf),
    /// In this process: `memory:`.
    Memory,
    /// On a backend of another crate.
    Other {
        /// The whole URL.
        url: String,
        /// What opens it.
        opener: Opener,
    },
}

/// Lets stores be opened by the URLs of a scheme, in this process from now on. The last one to register a scheme has
/// it; `file` and `memory` are not given away.
pub fn register(scheme: &'static str, opener: Opener) -> Result<(), StoreError> {
    if !is_scheme(scheme) || ["file", "memory"].contains(&scheme) {
        return Err(StoreError::Invalid(format!("'{}' cannot be the scheme of another backend", shorten(scheme))));
    }
    let mut others = OTHERS.write().unwrap_or_else(PoisonError::into_inner);
    others.retain(|(name, _)| *name != scheme);
    others.push((scheme, opener));
    Ok(())
}

impl Address {
    /// Understands a path, `file:/path` (also `file:///path`; `%20` and the like are decoded), `memory:`, and the URLs
    /// of registered schemes. What looks like no scheme is a path.
    pub fn of(text: impl AsRef<OsStr>) -> Result<Address, StoreError> {
        let text = text.as_ref();
        let split = text.to_str().and_then(|text| text.split_once(':').filter(|(scheme, _)| is_scheme(scheme)));
        let Some((scheme, rest)) = split else {
            return Ok(Address::Directory(text.into()));
        };
        match (scheme, rest) {
            ("file", _) => file(rest).map(Address::Directory),
            ("memory", "") => Ok(Address::Memory),
            ("memory", _) => Err(StoreError::Invalid(format!("'memory:{}': expected memory: alone", shorten(rest)))),
            _ => {
                let others = OTHERS.read().unwrap_or_else(PoisonError::into_inner);
                let Some((_, opener)) = others.iter().find(|(name, _)| *name == scheme) else {
                    let mut known = vec!["file", "memory"];
                    known.extend(others.iter().map(|(name, _)| name));
                    let known = known.join(":, ") + ":";
                    return Err(StoreError::UnknownScheme { scheme: shorten(scheme), known });
                };
                Ok(Address::Other { url: format!("{scheme}:{rest}"), opener: *opener })
            }
        }
    }

    /// The directory near by: the store itself, or what belongs to it on this machine.
    pub fn near(&self) -> Option<PathBuf> {
        match self {
            Address::Directory(path) => Some(path.clone()),
            Address::Memory => None,
            Address::Other { url, opener } => (opener.near)(url),
        }
    }

    /// The directory, where it is one.
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Address::Directory(path) => Some(path),
            _ => None,
        }
    }

    /// Opens the store there; in memory each time a new one.
    pub fn open(&self) -> Result<Store, StoreError> {
        match self {
            Address::Directory(path) => Store::directory(path),
            Address::Memory => Ok(Store::memory()),
            Address::Other { url, opener } => (opener.open)(url),
        }
    }
}

impl Store {
    /// Opens a store by a path or a URL, as [`Address::of`] understands it.
    pub fn open(url: impl AsRef<OsStr>) -> Result<Store, StoreError> {
        Address::of(url)?.open()
    }
}

/// Whether a word can be a scheme. A single letter is a drive.
fn is_scheme(word: &str) -> bool {
    let ok = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-.".contains(&b);
    (2..=32).contains(&word.len()) && word.starts_with(|c: char| c.is_ascii_lowercase()) && word.bytes().all(ok)
}

/// The path of what follows `file:`.
fn file(rest: &str) -> Result<PathBuf, StoreError> {
    let bad = |why: &str| StoreError::Invalid(format!("'file:{}': {why}", shorten(rest)));
    let path = match rest.strip_prefix("//") {
        Some(after) => match after.find('/') {
            Some(end) if ["", "localhost"].contains(&&after[..end]) => &after[end..],
            _ => return Err(bad("expected file:/path, on this machine")),
        },
        None => rest,
    };
    if path.is_empty() {
        return Err(bad("expected file:/path"));
    }
    decoded(path).map(PathBuf::from).ok_or_else(|| bad("expected two hexadecimal digits behind each %, and text"))
}

/// The text behind a URL's `%20` and the like; nothing where two hexadecimal digits are missing, or it is no text.
pub fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        bytes.push((digit()? * 16 + digit()?) as u8);
    }
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(text: &str) -> PathBuf {
        Address::of(text).unwrap().directory().unwrap_or_else(|| panic!("{text}")).to_path_buf()
    }

    #[test]
    fn paths_are_taken_as_they_are_and_file_urls_are_decoded() {
        for path in ["/a/b", "a", "./a:b", "/a:b", "a b", "%41", "C:\\x", "A:b", "a/b:c", ".x:y"] {
            assert_eq!(directory(path), Path::new(path));
        }
        for (url, path) in [
            ("file:/a/b", "/a/b"),
            ("file:///a/b", "/a/b"),
            ("file://localhost/a", "/a"),
            ("file:a/b", "a/b"),
            ("file:/a%20b%2Fc%C3%A4", "/a b/cä"),
        ] {
            assert_eq!(directory(url), Path::new(path));
        }
        for bad in
            ["file:", "file://", "file://host/a", "file:/a%2", "file:/a%zz", "file:/%ff", "file:/%00", "memory:x"]
        {
            assert!(matches!(Address::of(bad), Err(StoreError::Invalid(_))), "{bad}");
        }
    }

    #[test]
    fn memory_is_a_new_store_each_time() {
        let (one, other) = (Store::open("memory:").unwrap(), Store::open("memory:").unwrap());
        assert_eq!(one.place(), "memory");
        assert_ne!(one.id(), other.id());
    }

    #[test]
    fn an_unknown_scheme_is_told_with_those_there_are() {
        let said = Store::open("nosuch://host/x").unwrap_err().to_string();
        assert!(said.contains("'nosuch:'") && said.contains("file:, memory:") && said.contains("./nosuch:"), "{said}");
        for bad in ["file", "memory", "", "x", "UP", "a b"] {
            assert!(register(bad, Opener { open: |_| Err(StoreError::NoHome), near: |_| None }).is_err(), "{bad}");
        }
    }
}
