//! What the plans of sampled products share: the buffers in order, the facts kernels are compiled with, the arguments.

use warplap_core::rejection::Rejection;
use warplap_cuda::{Cuda, dtype_code};

use crate::cuda::own::OnCuda;
use crate::cuda::plan::{Argument, int};
use crate::gemm::Layout;
use crate::sampled::{Sampled, SampledArgs, SampledProblem};

/// How many buffers a launch has: row pointers, column indices, G, B, the blocks.
pub(super) const BUFFERS: usize = 5;

impl OnCuda<BUFFERS> for Sampled {
    fn addresses(built: &SampledProblem, args: &SampledArgs<'_, Cuda>) -> Result<[u64; BUFFERS], Rejection> {
        let refused = |reason: String| Rejection::LaunchFailed { reason };
        if args.problem != built {
            return Err(refused("a kernel was launched for another problem than it was built for".into()));
        }
        args.check_spans().map_err(|e| refused(e.to_string()))?;
        let (g, b, values) = (args.g.address(), args.b.address(), args.values.address());
        for (name, address) in [("g", g), ("b", b), ("values", values)] {
            if !address.is_multiple_of(16) {
                let remedy = "copy it to a buffer of its own";
                return Err(refused(format!("{name} must lie on a multiple of 16 bytes: {remedy}")));
            }
        }
        Ok([args.row_ptr.address(), args.col_idx.address(), g, b, values])
    }
}

/// Facts of the problem that every kernel is compiled with.
pub(super) fn facts(p: &SampledProblem) -> Vec<(&'static str, i64)> {
    let col = |layout| i64::from(layout == Layout::Col);
    let (dtype, bs) = (dtype_code(p.pattern.dtype), p.pattern.bs as i64);
    vec![("DTYPE", dtype), ("BS", bs), ("G_COL", col(p.g)), ("B_COL", col(p.pattern.b))]
}

/// The parameters that every entry has.
pub(super) fn arguments(p: &SampledProblem) -> Vec<Argument> {
    let p = &p.pattern;
    let sizes = [p.m, p.k, p.n, p.rows() as u64].map(int);
    (0..BUFFERS).map(Argument::Pointer).chain(sizes).collect()
}

/// Blocks of a launch: an empty pattern gets one, which finds nothing to do.
pub(super) fn blocks(p: &SampledProblem) -> u64 {
    p.pattern.nnz.max(1)
}
