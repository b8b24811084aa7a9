//! From arguments to slices that kernels may trust: the indices are checked once per launch.

use warplap_core::arg::Arg;
use warplap_core::rejection::Rejection;
use warplap_cpu::{Cpu, Typed};

use crate::bsr::validate;
use crate::sampled::{SampledProblem, no_square, slot};
use crate::typed;

/// The typed slots of a launch. Row pointers and columns are a block-sparse matrix, and everything is as long as the
/// problem says: kernels rely on it.
pub(super) struct Call<'a, T> {
    pub(super) row_ptr: &'a [i32],
    pub(super) col_idx: &'a [i32],
    pub(super) g: &'a [T],
    pub(super) b: &'a [T],
    pub(super) values: &'a mut [T],
}

impl<'a, T: Typed> Call<'a, T> {
    pub(super) fn checked(problem: &SampledProblem, args: &mut [Arg<'a, Cpu>]) -> Result<Self, Rejection> {
        let p = &problem.pattern;
        // The catalog hands out kernels that refuse shorter arguments than the signature's; longer ones are cut.
        let row_ptr = &typed::read::<i32>(args[slot::ROW_PTR].read()?)?[..p.rows() + 1];
        let col_idx = &typed::read::<i32>(args[slot::COL_IDX].read()?)?[..p.nnz as usize];
        validate(row_ptr, col_idx, p.values_len(), p).map_err(|e| Rejection::LaunchFailed { reason: e.to_string() })?;
        let g = &typed::read::<T>(args[slot::G].read()?)?[..(p.m * p.n) as usize];
        let b = &typed::read::<T>(args[slot::B].read()?)?[..(p.k * p.n) as usize];
        let values = &mut typed::write::<T>(args[slot::VALUES].write()?)?[..p.values_len()];
        Ok(Call { row_ptr, col_idx, g, b, values })
    }
}

/// Refuses to build what no kernel takes.
pub(super) fn square(p: &SampledProblem) -> Result<(), Rejection> {
    no_square(p).map_or(Ok(()), |reason| Err(Rejection::DoesNotBuild { reason }))
}
