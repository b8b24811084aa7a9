//! The registry: the one ordered list of operations. Whoever offers operations (sessions, the `any` door, the program,
//! Python, Burn) is handed each of them in turn and has no list of its own.

use warplap_core::op::Op;

/// An operation with variants on the CPU, where this package is built with them.
#[cfg(feature = "cpu")]
pub trait OnCpu: warplap_core::catalog::Raced<warplap_cpu::Cpu> {}
#[cfg(feature = "cpu")]
impl<O: warplap_core::catalog::Raced<warplap_cpu::Cpu>> OnCpu for O {}
/// An operation, in a package without variants on the CPU.
#[cfg(not(feature = "cpu"))]
pub trait OnCpu {}
#[cfg(not(feature = "cpu"))]
impl<O: Op> OnCpu for O {}

/// An operation with variants on NVIDIA GPUs, where this package is built with them.
#[cfg(feature = "cuda")]
pub trait OnCuda: warplap_core::catalog::Raced<warplap_cuda::Cuda> {}
#[cfg(feature = "cuda")]
impl<O: warplap_core::catalog::Raced<warplap_cuda::Cuda>> OnCuda for O {}
/// An operation, in a package without variants on NVIDIA GPUs.
#[cfg(not(feature = "cuda"))]
pub trait OnCuda {}
#[cfg(not(feature = "cuda"))]
impl<O: Op> OnCuda for O {}

/// An operation of the registry: variants on every device kind, and how programs name it.
pub trait Known: Op + OnCpu + OnCuda {
    /// Other names that are understood.
    const ALIASES: &'static [&'static str];

    /// Whether kernels themselves look at whole numbers they are given before they follow them: no check is needed then.
    const GUARDED: bool = false;

    /// A problem to begin with.
    const EXAMPLE: &'static str;

    /// Problems that are tuned when nobody asks for others, by device kind: one a line, `#` begins a comment.
    const SUITES: &'static [(&'static str, &'static str)];
}

/// Who is handed every operation.
pub trait Visitor {
    /// Takes one.
    fn visit<O: Known>(&mut self);
}

/// Hands every operation to a visitor, in the order they are shown.
pub fn each(visitor: &mut impl Visitor) {
    #[cfg(feature = "gemm")]
    visitor.visit::<crate::gemm::Gemm>();
    #[cfg(feature = "attention")]
    visitor.visit::<crate::attention::Attention>();
    #[cfg(feature = "attention")]
    visitor.visit::<crate::attention_grad::AttentionGrad>();
    #[cfg(feature = "attention")]
    visitor.visit::<crate::attention_mask_grad::AttentionMaskGrad>();
    #[cfg(feature = "bsr")]
    visitor.visit::<crate::bsr::Bsr>();
    #[cfg(feature = "sampled")]
    visitor.visit::<crate::sampled::Sampled>();
    #[cfg(feature = "norm")]
    visitor.visit::<crate::norm::Norm>();
    #[cfg(feature = "norm")]
    visitor.visit::<crate::norm_grad::NormGrad>();
    #[cfg(feature = "qgemm")]
    visitor.visit::<crate::qgemm::Qgemm>();
    #[cfg(feature = "softmax")]
    visitor.visit::<crate::softmax::Softmax>();
    #[cfg(feature = "softmax")]
    visitor.visit::<crate::softmax_grad::SoftmaxGrad>();
    #[cfg(feature = "cross_entropy")]
    visitor.visit::<crate::cross_entropy::CrossEntropy>();
    #[cfg(feature = "rope")]
    visitor.visit::<crate::rope::Rope>();
    #[cfg(feature = "gated")]
    visitor.visit::<crate::gated::Gated>();
}
