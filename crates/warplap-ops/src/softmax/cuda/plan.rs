//! What the plans of softmax share: the facts kernels are compiled with, the arguments.

use warplap_cuda::dtype_code;

use crate::cuda::plan::{Argument, int};
use crate::softmax::{SLOTS, SoftmaxProblem};

/// Facts of the problem that every kernel is compiled with.
pub(super) fn facts(p: &SoftmaxProblem) -> Vec<(&'static str, i64)> {
    vec![("DTYPE", dtype_code(p.dtype)), ("MASK", i64::from(p.mask > 0))]
}

/// The parameters that every entry has: all slots in order, then rows, elements of a row, rows of the mask, rows that
/// share one of them, and the factor.
pub(super) fn arguments(p: &SoftmaxProblem) -> Vec<Argument> {
    // A float is the 32 bits it consists of.
    let scale = Argument::Int(p.scale().to_bits() as i32);
    let numbers = [int(p.rows), int(p.n), int(p.mask.max(1)), int(p.each.max(1)), scale];
    (0..SLOTS).map(Argument::Pointer).chain(numbers).collect()
}
