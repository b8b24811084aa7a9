//! The reference: one thread an element of a block, f32 sums. Twin of `reference.cu`.
//!
//! Idea: the plainest kernel there is. Wins: never by design. Limits: none; it fits everything and is the fallback.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, ELEMENT, Source};

use super::plan::{arguments, blocks, facts};
use crate::cuda::plan::{CudaKernelSpec, Grid, Plan};
use crate::sampled::SampledProblem;

/// One thread an element.
pub(super) struct Reference;

impl CudaKernelSpec<SampledProblem> for Reference {
    fn id(&self) -> &'static str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &SampledProblem, _: &Chip) -> Fit {
        Fit::LOW
    }

    fn space(&self, _: &SampledProblem, _: &Chip) -> Space {
        Space::single()
    }

    fn plan(&self, p: &SampledProblem, _: &Config, _: &Chip) -> Result<Plan, Rejection> {
        let text = include_str!("reference.cu");
        Ok(Plan {
            source: Source { entry: self.id(), text, headers: &[ELEMENT], defines: facts(p) },
            threads: 256,
            shared: 0,
            grid: Grid::Blocks(blocks(p)),
            arguments: arguments(p)?,
            overlap: false,
        })
    }
}
