//! The reference: one block a row, a thread a pair. Twin of `reference.cu`.
//!
//! Idea: the plainest kernel there is. Wins: never by design. Limits: none; it fits everything and is the fallback.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, ELEMENT, ROPE, Source};

use super::plan::{arguments, facts};
use crate::cuda::plan::{CudaKernelSpec, Grid, Plan};
use crate::rope::RopeProblem;

/// One block a row.
pub(super) struct Reference;

impl CudaKernelSpec<RopeProblem> for Reference {
    fn id(&self) -> &'static str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &RopeProblem, _: &Chip) -> Fit {
        Fit::LOW
    }

    fn space(&self, _: &RopeProblem, _: &Chip) -> Space {
        Space::single()
    }

    fn plan(&self, p: &RopeProblem, _: &Config, _: &Chip) -> Result<Plan, Rejection> {
        let text = include_str!("reference.cu");
        Ok(Plan {
            source: Source { entry: self.id(), text, headers: &[ROPE, ELEMENT], defines: facts(p) },
            threads: 256,
            shared: 0,
            grid: Grid::Blocks(p.rows),
            arguments: arguments(p),
            overlap: false,
        })
    }
}
