//! The operations that have a call of their own, faster than the one by slots.

pub(crate) mod attention;
pub(crate) mod bsr;
pub(crate) mod gemm;
pub(crate) mod linear;
pub(crate) mod sampled;
pub(crate) mod sparse_linear;
