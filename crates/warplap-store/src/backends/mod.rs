//! Where documents are kept: what a place must be able to do, a directory, and memory.

pub(crate) mod backend;
pub(crate) mod directory;
pub mod files;
#[cfg(unix)]
pub(crate) mod group;
pub(crate) mod listing;
pub(crate) mod memory;
pub(crate) mod on_disk;
pub(crate) mod trust;
pub(crate) mod whole;
