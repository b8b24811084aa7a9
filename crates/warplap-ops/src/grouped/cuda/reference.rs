//! The reference: one thread an element, f32 sums. Twin of `reference.cu`.
//!
//! Idea: the plainest kernel there is. Wins: never by design. Limits: none; it fits everything and is the fallback.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{BLOCK, Chip, ELEMENT, Source};

use super::plan::{arguments, facts};
use crate::cuda::plan::{CudaKernelSpec, Grid, Plan};
use crate::grouped::GroupedProblem;

/// One thread an element.
pub(super) struct Reference;

impl CudaKernelSpec<GroupedProblem> for Reference {
    fn id(&self) -> &'static str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &GroupedProblem, _: &Chip) -> Fit {
        Fit::LOW
    }

    fn space(&self, _: &GroupedProblem, _: &Chip) -> Space {
        Space::single()
    }

    fn plan(&self, p: &GroupedProblem, _: &Config, _: &Chip) -> Result<Plan, Rejection> {
        let text = include_str!("reference.cu");
        Ok(Plan {
            source: Source { entry: self.id(), text, headers: &[BLOCK, ELEMENT], defines: facts(p) },
            threads: 256,
            shared: 0,
            grid: Grid::Blocks(p.rows * p.n.div_ceil(256)),
            arguments: arguments(p),
            overlap: false,
        })
    }
}
