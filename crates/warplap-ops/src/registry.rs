//! The registry: the one ordered list of operations. Whoever offers operations (sessions, the `any` door, the program,
//! Python, Burn) is handed each of them in turn and has no list of its own.

use warplap_core::catalog::Raced;
use warplap_core::op::Op;
use warplap_cpu::Cpu;
use warplap_cuda::Cuda;

/// An operation of the registry: variants on every device kind, and how programs name it.
pub trait Known: Op + Raced<Cpu> + Raced<Cuda> {
    /// Other names that are understood.
    const ALIASES: &'static [&'static str];

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
    visitor.visit::<crate::gemm::Gemm>();
    visitor.visit::<crate::attention::Attention>();
    visitor.visit::<crate::bsr::Bsr>();
    visitor.visit::<crate::sampled::Sampled>();
    visitor.visit::<crate::norm::Norm>();
}
