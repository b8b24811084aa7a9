//! Signatures, and whose are trusted.

pub mod minisign;
pub(crate) mod signing;
pub mod trusted;
