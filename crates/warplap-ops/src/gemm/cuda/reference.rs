//! The reference: one thread an element, tiles of 16 through shared memory, f32 sums.
//!
//! Idea: the plainest kernel there is. Wins: never by design. Limits: none; it fits everything and is the fallback.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, Source};

use super::plan::{HEADERS, facts, plain};
use crate::cuda::plan::{CudaKernelSpec, Grid, Plan};
use crate::gemm::GemmProblem;

/// One thread an element.
pub(super) struct Reference;

impl CudaKernelSpec<GemmProblem> for Reference {
    fn id(&self) -> &'static str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &GemmProblem, _: &Chip) -> Fit {
        Fit::LOW
    }

    fn space(&self, _: &GemmProblem, _: &Chip) -> Space {
        Space::single()
    }

    fn plan(&self, p: &GemmProblem, _: &Config, _: &Chip) -> Result<Plan, Rejection> {
        let source =
            Source { entry: self.id(), text: include_str!("reference.cu"), headers: &HEADERS, defines: facts(p) };
        let grid = Grid::Blocks(p.m.div_ceil(16) * p.n.div_ceil(16) * p.batch);
        Ok(Plan { source, threads: 256, shared: 0, grid, arguments: plain(p), overlap: false })
    }
}
