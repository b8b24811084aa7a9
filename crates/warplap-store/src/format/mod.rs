//! What a document looks like: its text, its seal, and whether it is sound.

pub mod alphabet;
pub(crate) mod file;
pub(crate) mod sealed;
pub(crate) mod sound;
pub(crate) mod stamp;
