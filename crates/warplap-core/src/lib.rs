//! The words and the road of warplap. This crate knows no device.
//!
//! A request takes this road, one room a stage:
//! request → key → lookup → (miss) listing → pruning → search → build → verify → measure → verdict → record → dispatch.
#![forbid(unsafe_code)]

pub mod candidate;
pub mod dtype;
pub mod fingerprint;
pub mod key;
pub mod measure;
pub mod record;
pub mod rejection;
pub mod roofline;
pub mod space;
pub mod store;
pub mod verdict;
