//! The reference: one thread an element of C, f32 sums.
//!
//! Idea: the plainest kernel there is. Wins: never by design. Limits: none; it fits everything and is the fallback.

use std::ffi::c_void;

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Variant};
use warplap_cuda::{Cuda, ELEMENT, Function, LaunchShape, SCALED, Source, Stream};

use super::plan::{facts, scale_of};
use crate::bsr::{Bsr, BsrArgs, BsrProblem};
use crate::gemm::Layout;

/// One thread an element of C.
pub(super) struct Reference;

/// The kernel for a problem.
pub(super) fn source(p: &BsrProblem) -> Source {
    let mut defines = facts(p);
    defines.extend([("B_COL", p.b == Layout::Col), ("TURNED", p.turned)].map(|(name, fact)| (name, i64::from(fact))));
    Source { entry: "reference", text: include_str!("reference.cu"), headers: &[ELEMENT, SCALED], defines }
}

impl Variant<Bsr, Cuda> for Reference {
    fn id(&self) -> &str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        SourceHash::of(&[include_str!("reference.cu"), include_str!("reference.rs"), ELEMENT.1, SCALED.1])
    }

    fn fit(&self, _: &BsrProblem, _: &Cuda) -> Fit {
        Fit::LOW
    }

    fn space(&self, _: &BsrProblem, _: &Cuda) -> Space {
        Space::single()
    }

    fn build(&self, p: &BsrProblem, _: &Config, cuda: &Cuda) -> Result<Box<dyn Kernel<Bsr, Cuda>>, Rejection> {
        let blocks = u32::try_from((p.m * p.n).div_ceil(256)).ok().filter(|b| *b < 1 << 31);
        let blocks = blocks.ok_or_else(|| Rejection::OverLimits { reason: "the grid is too large".into() })?;
        let function = cuda.build(&source(p))?;
        let shape = LaunchShape { grid: [blocks, 1, 1], threads: 256, ..LaunchShape::default() };
        Ok(Box::new(Elements { problem: *p, function, shape }))
    }
}

struct Elements {
    problem: BsrProblem,
    function: Function,
    shape: LaunchShape,
}

impl Kernel<Bsr, Cuda> for Elements {
    fn launch(&self, args: BsrArgs<'_, Cuda>, queue: &Stream) -> Result<(), Rejection> {
        let p = &self.problem;
        let refused = |reason: String| Rejection::LaunchFailed { reason };
        if !args.problem.is_served_by(p) {
            return Err(refused("a kernel was launched for another problem than it was built for".into()));
        }
        args.check_spans().map_err(|e| refused(e.to_string()))?;
        if p.m * p.n == 0 {
            return Ok(());
        }
        let (row_ptr, col_idx, values) = (args.row_ptr.address(), args.col_idx.address(), args.values.address());
        let (c, place) = (args.c.address(), args.place.map_or(0, |place| place.address()));
        let [add, alpha, beta] = scale_of(&args);
        let buffers = [row_ptr, col_idx, values, args.b.address(), c, p.m, p.k, p.n, place, add, alpha, beta];
        let list = buffers.each_ref().map(|b| (&raw const *b).cast::<c_void>());
        // SAFETY: addresses and sizes of eight bytes and two floats, as the entry declares them; the buffers were checked to
        // hold what the problem spans, the views borrow them, and the caller vouches for the indices.
        unsafe { self.function.launch(&self.shape, &list, queue) }.map_err(|e| e.rejection())
    }
}
