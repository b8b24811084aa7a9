//! What the plans of sampled products share: the facts kernels are compiled with, the arguments.

use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_cuda::dtype_code;

use crate::cuda::plan::{Argument, int};
use crate::gemm::Layout;
use crate::sampled::{SLOTS, SampledProblem, no_square};

/// Facts of the problem that every kernel is compiled with.
pub(super) fn facts(p: &SampledProblem) -> Vec<(&'static str, i64)> {
    let col = |layout| i64::from(layout == Layout::Col);
    let (dtype, bs) = (dtype_code(p.pattern.dtype), p.pattern.bs as i64);
    vec![("DTYPE", dtype), ("BS", bs), ("G_COL", col(p.g)), ("B_COL", col(p.pattern.b))]
}

/// Refuses what no kernel takes.
pub(super) fn square(p: &SampledProblem) -> Result<(), Rejection> {
    no_square(p).map_or(Ok(()), |reason| Err(Rejection::DoesNotBuild { reason }))
}

/// Why a problem is nothing for tensor cores, if so.
pub(super) fn no_tensor_cores(p: &SampledProblem) -> Option<&'static str> {
    let of = &p.pattern;
    let row = p.g == Layout::Row || of.b == Layout::Row;
    match () {
        () if of.dtype == DType::F32 => Some("f16 and bf16 only"),
        () if row && !of.n.is_multiple_of(8) => Some("rows of G and B must be whole runs of 16 bytes"),
        () if of.m.max(of.n).max(of.k).max(of.nnz * of.bs) > i32::MAX as u64 => Some("sizes must fit 31 bits"),
        () => None,
    }
}

/// The parameters that most entries have: all slots in order, then sizes.
pub(super) fn arguments(p: &SampledProblem) -> Result<Vec<Argument>, Rejection> {
    square(p)?;
    let p = &p.pattern;
    let sizes = [p.m, p.k, p.n, p.rows() as u64].map(int);
    Ok((0..SLOTS).map(Argument::Pointer).chain(sizes).collect())
}

/// Blocks of a launch: an empty pattern gets one, which finds nothing to do.
pub(super) fn blocks(p: &SampledProblem) -> u64 {
    p.pattern.nnz.max(1)
}
