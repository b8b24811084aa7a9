//! CUDA kernels on a GPU: a config becomes sizes of a launch, a compiled function, and that a variant. Where the right
//! answer comes from a kernel too, `right` runs it there.

mod right;
mod sizes;
mod variant;

pub(crate) use right::Right;
pub(crate) use variant::{OwnCuda, PlainCuda};
