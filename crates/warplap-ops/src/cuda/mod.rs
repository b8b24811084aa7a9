//! What the CUDA variants of every operation share: the plan of a kernel, and how it is built and launched.

pub(crate) mod launch;
pub(crate) mod own;
pub(crate) mod plan;
