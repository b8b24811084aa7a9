//! The words and the engine of warplap. This crate knows no device.
//!
//! A request goes through one room a stage:
//! request → key → lookup → (miss) listing → pruning → search → build → verify → measure → verdict → record → dispatch.
//! `engine` calls the others in this order.
#![forbid(unsafe_code)]

mod candidates;
mod contest;
pub mod device;
pub mod dispatch;
pub mod engine;
pub mod error;
pub mod measure;
mod model;
mod prove;
pub mod search;
pub mod space;
pub mod split;

// Whoever uses this crate names what it needs, not the room.
pub use candidates::{catalog, prune, variant};
pub use contest::verdict;
pub use dispatch::by_type;
pub use engine::compare::{bench, regret};
pub use engine::{background, progress, settings};
pub use measure::timing;
pub use model::{
    arg, array, bucket, declare, dtype, erased, objective, op, problem, roofline, scalar, slot, tolerance,
};
pub use prove::{oracle, panics, perturb_inputs, quarantine, sandbox, shift, verify, worker_entry};
pub use warplap_store as store;
pub use warplap_store::io::{environment, sanitize_text, temp_dirs, user_files};
pub use warplap_store::records::{candidate, fingerprint, key, ranking, record, rejection, resources};
use warplap_store::{io, records};
