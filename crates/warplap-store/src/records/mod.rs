//! What is kept of a race: who ran, on what device, every trial, and what was decided.

mod among;
pub mod candidate;
pub mod config;
pub mod fingerprint;
pub mod key;
pub mod measurement;
pub mod ranking;
pub mod record;
pub mod rejection;
pub mod resources;
pub mod verdict;
pub mod work;
