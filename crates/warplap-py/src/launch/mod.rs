//! Launches without a problem: compiled Triton kernels, a user's kernel once, a GPU by hand.

pub(crate) mod by_hand;
pub(crate) mod gpu;
pub(crate) mod launches;
pub(crate) mod once;
pub(crate) mod parameter;
pub(crate) mod pool;
