//! What is raced: one folder an operation, one file a variant, one ordered list a device.

#[macro_use]
mod sources;

pub mod attention;
pub mod bsr;
mod cuda;
pub mod gemm;
pub mod norm;
pub mod registry;
mod right;
pub mod sampled;
mod typed;

/// What programs name of every operation.
pub mod exports {
    pub use crate::attention::{Attention, AttentionProblem};
    pub use crate::bsr::{Bsr, BsrProblem};
    pub use crate::gemm::{Gemm, GemmProblem, Layout};
    pub use crate::norm::{Norm, NormProblem};
    pub use crate::sampled::{Sampled, SampledProblem};
}
