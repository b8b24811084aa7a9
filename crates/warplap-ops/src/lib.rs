//! What is raced: one folder an operation, one file a variant, one ordered list a device.
//!
//! Features: `cpu` and `cuda` are the variants by device kind.
#![cfg_attr(
    not(all(feature = "cpu", feature = "cuda")),
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
#[macro_use]
pub mod registry;

pub mod attention;
pub mod attention_grad;
pub mod attention_mask_grad;
pub mod bsr;
pub mod cross_entropy;
#[cfg(feature = "cuda")]
mod cuda;
mod extent;
mod faer;
pub mod gated;
pub mod gemm;
pub mod grouped;
mod host;
pub mod norm;
pub mod norm_grad;
mod philox;
pub mod qgemm;
mod right;
pub mod rope;
#[cfg(feature = "cpu")]
mod row_vectors;
pub mod sampled;
pub mod softmax;
pub mod softmax_grad;
pub mod topk_softmax;
#[cfg(feature = "cpu")]
mod typed;

pub use host::in_parallel;

// All operations there are, in the order they are shown: each by its folder, its type, and what else programs name.
operations! {
    gemm::{Gemm, GemmProblem, Activation, Join, Layout},
    attention::{Attention, AttentionProblem},
    attention_grad::{AttentionGrad, AttentionGradProblem},
    attention_mask_grad::{AttentionMaskGrad, AttentionMaskGradProblem},
    bsr::{Bsr, BsrProblem},
    sampled::{Sampled, SampledProblem},
    norm::{Norm, NormProblem},
    norm_grad::{NormGrad, NormGradProblem},
    qgemm::{Qgemm, QgemmProblem},
    softmax::{Softmax, SoftmaxProblem},
    softmax_grad::{SoftmaxGrad, SoftmaxGradProblem},
    topk_softmax::{TopkSoftmax, TopkSoftmaxProblem},
    cross_entropy::{CrossEntropy, CrossEntropyProblem},
    rope::{Rope, RopeProblem},
    gated::{Gated, GatedProblem},
    grouped::{Grouped, GroupedProblem, Spread},
}
