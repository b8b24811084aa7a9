//! The searches by name, one file each.

pub(super) mod annealing;
pub(super) mod climb;
pub(super) mod evolution;
pub(super) mod exhaustive;
pub(super) mod gaussian;
pub(super) mod genetic;
pub(super) mod halving;
pub(super) mod random;
pub(super) mod surrogate;
pub(super) mod swarm;
