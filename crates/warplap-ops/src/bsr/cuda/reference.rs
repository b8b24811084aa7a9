//! The reference: one thread an element of C, f32 sums. Twin of `reference.cu`.
//!
//! Idea: the plainest kernel there is. Wins: never by design. Limits: none; it fits everything and is the fallback.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, ELEMENT, FACTOR, QUANT, SCALED, Source};

use super::plan::{B, BsrKernelSpec, C, COL_IDX, PLACE, ROW_PTR, VALUES, facts, scale_arguments};
use crate::bsr::BsrProblem;
use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Plan};
use crate::gemm::Layout;

/// One thread an element of C.
pub(super) struct Reference;

/// The kernel for a problem.
pub(super) fn source(p: &BsrProblem) -> Source {
    let mut defines = facts(p);
    defines.extend([("B_COL", p.b == Layout::Col), ("TURNED", p.turned)].map(|(name, fact)| (name, i64::from(fact))));
    let headers = &[FACTOR, QUANT, ELEMENT, SCALED];
    Source { entry: "reference", text: include_str!("reference.cu"), headers, defines }
}

impl CudaKernelSpec<BsrProblem> for Reference {
    fn id(&self) -> &'static str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &BsrProblem, _: &Chip) -> Fit {
        Fit::LOW
    }

    fn space(&self, _: &BsrProblem, _: &Chip) -> Space {
        Space::single()
    }

    fn plan(&self, p: &BsrProblem, _: &Config, _: &Chip) -> Result<Plan, Rejection> {
        let mut arguments = [ROW_PTR, COL_IDX, VALUES, B, C].map(Argument::Pointer).to_vec();
        arguments.extend([p.m, p.k, p.n].map(Argument::Long));
        arguments.push(Argument::Pointer(PLACE));
        arguments.extend(scale_arguments(p));
        let grid = Grid::Blocks((p.m * p.n).div_ceil(256));
        Ok(Plan { source: source(p), threads: 256, shared: 0, grid, arguments, overlap: false })
    }
}

impl BsrKernelSpec for Reference {
    fn together(&self, _: &BsrProblem, _: &Config) -> Result<usize, Rejection> {
        Ok(0)
    }

    fn is_turning(&self) -> bool {
        true
    }
}
