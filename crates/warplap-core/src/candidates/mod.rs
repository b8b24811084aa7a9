//! Who may race: variants and their settings, which of them are legal here, and why one left.

pub mod catalog;
pub(crate) mod compile_ahead;
pub mod prune;
pub mod variant;
