//! The reference: blocks that walk the rows, f32 sums. Twin of `reference.cu`.
//!
//! Idea: the plainest kernel there is. Wins: never by design. Limits: none; it fits everything and is the fallback.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, Source};

use super::plan::{HEADERS, arguments, columns, facts};
use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Plan, PrePostLaunches};
use crate::cuda::scratch::Need;
use crate::norm_grad::NormGradProblem;

/// Blocks that walk the rows.
pub(super) struct Reference;

/// Blocks at the most: each has a row of sums.
const BLOCKS: u64 = 256;

impl CudaKernelSpec<NormGradProblem> for Reference {
    fn id(&self) -> &'static str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &NormGradProblem, _: &Chip) -> Fit {
        Fit::LOW
    }

    fn space(&self, _: &NormGradProblem, _: &Chip) -> Space {
        Space::single()
    }

    fn plan(&self, p: &NormGradProblem, _: &Config, _: &Chip) -> Result<Plan, Rejection> {
        let (text, blocks) = (include_str!("reference.cu"), p.norm.rows.min(BLOCKS));
        let scratch = Argument::Scratch(Need { words: blocks * 2 * p.norm.n, zeros: 0 });
        Ok(Plan {
            source: Source { entry: self.id(), text, headers: &HEADERS, defines: facts(p) },
            threads: 256,
            shared: 0,
            grid: Grid::Blocks(blocks),
            arguments: arguments(p, scratch),
            overlap: false,
        })
    }

    fn beside(&self, p: &NormGradProblem, _: &Config, _: &Chip) -> Result<PrePostLaunches, Rejection> {
        let has = p.norm.weight || p.norm.bias;
        let last = has.then(|| columns(p, p.norm.rows.min(BLOCKS))).into_iter().collect();
        Ok(PrePostLaunches { first: Vec::new(), last })
    }
}
