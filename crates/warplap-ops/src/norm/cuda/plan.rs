//! What the plans of normalisation share: the facts kernels are compiled with, the arguments.

use warplap_cuda::dtype_code;

use crate::cuda::plan::{Argument, int};
use crate::norm::{Kind, NormProblem, SLOTS};

/// Facts of the problem that every kernel is compiled with.
pub(super) fn facts(p: &NormProblem) -> Vec<(&'static str, i64)> {
    vec![
        ("DTYPE", dtype_code(p.dtype)),
        ("LAYER", i64::from(p.kind == Kind::Layer)),
        ("RESIDUAL", i64::from(p.residual)),
        ("WEIGHT", i64::from(p.weight)),
        ("BIAS", i64::from(p.bias)),
    ]
}

/// The parameters that every entry has: all slots in order, then rows, elements of a row, and what is added under the
/// root.
pub(super) fn arguments(p: &NormProblem) -> Vec<Argument> {
    // A float is the 32 bits it consists of.
    let numbers = [int(p.rows), int(p.n), Argument::Int(p.eps().to_bits() as i32)];
    (0..SLOTS).map(Argument::Pointer).chain(numbers).collect()
}
