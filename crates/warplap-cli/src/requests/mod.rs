//! What the program is asked: arguments, names, suites, sweeps.

pub(crate) mod args;
pub(crate) mod global;
pub(crate) mod names;
pub(crate) mod race_args;
pub(crate) mod suite;
pub(crate) mod sweep;
