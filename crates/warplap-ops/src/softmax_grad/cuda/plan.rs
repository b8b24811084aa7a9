//! What the plans of softmax's gradients share: the facts kernels are compiled with, the arguments.

use warplap_cuda::dtype_code;

use crate::cuda::plan::{Argument, int};
use crate::softmax_grad::{SLOTS, SoftmaxGradProblem};

/// Facts of the problem that every kernel is compiled with.
pub(super) fn facts(SoftmaxGradProblem(p): &SoftmaxGradProblem) -> Vec<(&'static str, i64)> {
    vec![("DTYPE", dtype_code(p.dtype))]
}

/// The parameters that every entry has: all slots in order, then rows, elements of a row, and the factor.
pub(super) fn arguments(SoftmaxGradProblem(p): &SoftmaxGradProblem) -> Vec<Argument> {
    // A float is the 32 bits it consists of.
    let numbers = [int(p.rows), int(p.n), Argument::Int(p.scale().to_bits() as i32)];
    (0..SLOTS).map(Argument::Pointer).chain(numbers).collect()
}
