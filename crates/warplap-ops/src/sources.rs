//! The identity of a variant: what it is compiled of, found by the build script (`build/sources/mod.rs` says how).
//!
//! A variant says `fn source(&self) -> SourceHash { source!() }`. What else its kernels depend on (the version of a
//! library, what it wraps) is handed in: `source!(&version)`.

use warplap_core::candidate::SourceHash;

/// Files from the package's folder on, and their identities.
const TABLE: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/sources.rs"));

/// The identity of the file that says it, together with texts that are handed in.
macro_rules! source {
    ($($with:expr),*) => {
        crate::sources::joined(const { crate::sources::of(file!()) }, &[$($with),*])
    };
}

/// The identity of a file of this package by its `file!()`, while compiling.
pub(crate) const fn of(file: &str) -> &'static str {
    let mut at = 0;
    while at < TABLE.len() {
        if ends_with(file.as_bytes(), TABLE[at].0.as_bytes()) {
            return TABLE[at].1;
        }
        at += 1;
    }
    panic!("the build script saw no `source!` in this file");
}

/// The compiler gives a path from the workspace on, or from the root where the package comes from a registry.
const fn ends_with(file: &[u8], own: &[u8]) -> bool {
    let Some(before) = file.len().checked_sub(own.len()) else { return false };
    let mut at = 0;
    while at < own.len() {
        let same = file[before + at] == own[at] || (file[before + at] == b'\\' && own[at] == b'/');
        if !same {
            return false;
        }
        at += 1;
    }
    before == 0 || file[before - 1] == b'/' || file[before - 1] == b'\\'
}

/// The identity of a file and of what was handed in with it.
pub(crate) fn joined(own: &str, with: &[&str]) -> SourceHash {
    match with {
        [] => SourceHash(own.to_string()),
        _ => SourceHash::of(&[&[own], with].concat()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_its_end_wherever_the_package_lies() {
        let own = b"src/cuda/own.rs";
        for path in ["src/cuda/own.rs", "crates/warplap-ops/src/cuda/own.rs", r"C:\crates\warplap-ops\src\cuda\own.rs"]
        {
            assert!(ends_with(path.as_bytes(), own), "{path}");
        }
        for path in ["cuda/own.rs", "crates/warplap-ops/src/gemm/cuda/own.rs", "xsrc/cuda/own.rs", ""] {
            assert!(!ends_with(path.as_bytes(), own), "{path}");
        }
    }

    #[test]
    fn what_is_handed_in_changes_the_identity() {
        let identities = [joined("a", &[]), joined("a", &["1"]), joined("a", &["2"]), joined("b", &["1"])];
        assert_eq!(identities[0].0, "a");
        assert_eq!(identities.iter().collect::<std::collections::HashSet<_>>().len(), identities.len());
    }
}
