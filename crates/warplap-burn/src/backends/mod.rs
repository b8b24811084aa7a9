//! Burn's backends as kernels see them: their memory, their order of work, and their own implementations, which race.

#[cfg(feature = "cuda")]
pub(crate) mod cube;
pub(crate) mod end_to_end_race;
#[cfg(feature = "cuda")]
pub(crate) mod fence;
pub(crate) mod flex;
pub(crate) mod place;
pub(crate) mod rival;
