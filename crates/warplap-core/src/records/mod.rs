//! What is kept of a race: every trial, and the order that was decided.

pub mod ranking;
pub mod record;
