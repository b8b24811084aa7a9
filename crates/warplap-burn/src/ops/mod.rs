//! Operations over Burn's tensors, one file each, and what their gradients need.

pub(crate) mod activation;
pub(crate) mod attention;
pub(crate) mod bsr;
pub(crate) mod gemm;
pub(crate) mod norm;
pub(crate) mod sparse_linear;
pub(crate) mod structure;
