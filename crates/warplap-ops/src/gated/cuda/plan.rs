//! What the plans of activations share: the facts kernels are compiled with, the arguments.

use warplap_cuda::dtype_code;

use crate::cuda::plan::{Argument, int};
use crate::gated::{GatedProblem, SLOTS};

/// Facts of the problem that every kernel is compiled with.
pub(super) fn facts(p: &GatedProblem) -> Vec<(&'static str, i64)> {
    vec![("DTYPE", dtype_code(p.dtype)), ("COLUMNS", p.n as i64), ("ACT", p.act.code()), ("JOIN", p.join.code())]
}

/// The parameters that every entry has: all slots in order, rows, and elements from a row to the next of a and of b.
pub(super) fn arguments(p: &GatedProblem) -> Vec<Argument> {
    let numbers = [int(p.rows), Argument::Long(p.lda), Argument::Long(p.ldb)];
    (0..SLOTS).map(Argument::Pointer).chain(numbers).collect()
}
