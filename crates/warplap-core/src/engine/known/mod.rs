//! What is known of a key before it is raced: its own record, other sizes of it, other devices.

pub(crate) mod artifact_digests;
pub(crate) mod merge_previous;
pub(crate) mod new_candidates;
pub(crate) mod provisional;
pub(crate) mod sizes;
pub(crate) mod status;
pub(crate) mod transfer_priors;
