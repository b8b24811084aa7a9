//! What is raced: one folder an operation, one file a variant, one ordered list a device.
//!
//! Features: `cpu` and `cuda` are the variants by device kind, and each operation is one by its name.
#![cfg_attr(
    not(all(
        feature = "cpu",
        feature = "cuda",
        feature = "gemm",
        feature = "attention",
        feature = "bsr",
        feature = "sampled",
        feature = "norm",
        feature = "qgemm",
        feature = "softmax",
        feature = "cross_entropy",
        feature = "rope",
        feature = "gated"
    )),
    allow(
        dead_code,
        unused_imports,
        unused_macros,
        unused_variables,
        reason = "built in part, it uses part of what is shared"
    )
)]

#[macro_use]
mod sources;

#[cfg(feature = "attention")]
pub mod attention;
#[cfg(feature = "attention")]
pub mod attention_grad;
#[cfg(feature = "attention")]
pub mod attention_mask_grad;
#[cfg(feature = "bsr")]
pub mod bsr;
#[cfg(feature = "cross_entropy")]
pub mod cross_entropy;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "gemm")]
mod faer;
#[cfg(feature = "gated")]
pub mod gated;
#[cfg(feature = "gemm")]
pub mod gemm;
#[cfg(any(feature = "gemm", feature = "norm", feature = "softmax", feature = "cross_entropy", feature = "rope"))]
mod host;
#[cfg(any(feature = "gemm", feature = "norm", feature = "softmax", feature = "cross_entropy", feature = "rope"))]
pub use host::in_parallel;
#[cfg(feature = "norm")]
pub mod norm;
#[cfg(feature = "norm")]
pub mod norm_grad;
#[cfg(feature = "norm")]
mod philox;
#[cfg(feature = "qgemm")]
pub mod qgemm;
pub mod registry;
#[cfg(feature = "gemm")]
mod right;
#[cfg(feature = "rope")]
pub mod rope;
#[cfg(all(
    feature = "cpu",
    any(feature = "norm", feature = "softmax", feature = "cross_entropy", feature = "rope", feature = "gated")
))]
mod row_vectors;
#[cfg(feature = "sampled")]
pub mod sampled;
#[cfg(feature = "softmax")]
pub mod softmax;
#[cfg(feature = "softmax")]
pub mod softmax_grad;
#[cfg(feature = "cpu")]
mod typed;

/// What programs name of every operation.
pub mod exports {
    #[cfg(feature = "attention")]
    pub use crate::attention::{Attention, AttentionProblem};
    #[cfg(feature = "attention")]
    pub use crate::attention_grad::{AttentionGrad, AttentionGradProblem};
    #[cfg(feature = "attention")]
    pub use crate::attention_mask_grad::{AttentionMaskGrad, AttentionMaskGradProblem};
    #[cfg(feature = "bsr")]
    pub use crate::bsr::{Bsr, BsrProblem};
    #[cfg(feature = "cross_entropy")]
    pub use crate::cross_entropy::{CrossEntropy, CrossEntropyProblem};
    #[cfg(feature = "gated")]
    pub use crate::gated::{Gated, GatedProblem};
    #[cfg(feature = "gemm")]
    pub use crate::gemm::{Activation, Gemm, GemmProblem, Join, Layout};
    #[cfg(feature = "norm")]
    pub use crate::norm::{Norm, NormProblem};
    #[cfg(feature = "norm")]
    pub use crate::norm_grad::{NormGrad, NormGradProblem};
    #[cfg(feature = "qgemm")]
    pub use crate::qgemm::{Qgemm, QgemmProblem};
    #[cfg(feature = "rope")]
    pub use crate::rope::{Rope, RopeProblem};
    #[cfg(feature = "sampled")]
    pub use crate::sampled::{Sampled, SampledProblem};
    #[cfg(feature = "softmax")]
    pub use crate::softmax::{Softmax, SoftmaxProblem};
    #[cfg(feature = "softmax")]
    pub use crate::softmax_grad::{SoftmaxGrad, SoftmaxGradProblem};
}
