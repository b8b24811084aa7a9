//! CUDA kernels on a GPU: a config becomes a plan, the plan a compiled function, and that a variant. Where the right answer
//! comes from a kernel too, `right` runs it there.

mod plan;
mod right;
mod variant;

pub(crate) use right::Right;
pub(crate) use variant::{OwnCuda, PlainCuda};
