//! Proving that a kernel is right: inputs and right answers, where candidates are tried, and what is remembered of them.

pub(crate) mod case;
pub(crate) mod check_kernel;
pub(crate) mod contain;
pub(crate) mod cost_probe;
pub(crate) mod gate;
pub mod oracle;
pub mod panics;
pub mod perturb_inputs;
pub(crate) mod proof_cache;
pub mod quarantine;
pub mod sandbox;
pub(crate) mod sealed;
pub mod shift;
pub mod verify;
pub mod worker_entry;
