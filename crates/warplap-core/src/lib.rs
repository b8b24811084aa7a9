//! The words and the road of warplap. This crate knows no device.
//!
//! A request takes this road, one room a stage:
//! request → key → lookup → (miss) listing → pruning → search → build → verify → measure → verdict → record → dispatch.
#![forbid(unsafe_code)]

mod ahead;
pub mod arg;
pub mod array;
pub mod background;
pub mod bench;
pub mod bucket;
pub mod by_type;
pub mod candidate;
pub mod card;
mod case;
pub mod catalog;
mod caught;
mod contained;
mod contest;
pub mod device;
pub mod dispatch;
pub mod dtype;
pub mod environment;
pub mod error;
mod fields;
pub mod fingerprint;
mod gate;
pub mod given;
pub mod key;
mod lanes;
mod ledger;
pub mod letters;
pub mod measure;
pub mod objective;
pub mod op;
pub mod oracle;
pub mod passing;
pub mod problem;
pub mod progress;
mod promoted;
mod prover;
pub mod proving;
pub mod prune;
pub mod quarantine;
pub mod ranked;
pub mod record;
pub mod recorded;
pub mod regret;
pub mod rejection;
pub mod resources;
pub mod roofline;
pub mod sandbox;
pub mod scalar;
mod scout;
mod sealed;
pub mod search;
pub mod settings;
pub mod slot;
pub mod space;
pub mod stir;
pub mod store;
pub mod timing;
pub mod tolerance;
pub mod tuner;
pub mod variant;
pub mod verdict;
pub mod verify;
mod yardstick;
