//! The reference: one block a row, which is read again for each that is chosen. Twin of `reference.cu`.
//!
//! Idea: the plainest kernel there is. Wins: never by design. Limits: none; it fits everything and is the fallback.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, Source};

use super::plan::{PLAIN_HEADERS, arguments, facts};
use crate::cuda::plan::{CudaKernelSpec, Grid, Plan};
use crate::topk_softmax::TopkSoftmaxProblem;

/// One block a row.
pub(super) struct Reference;

impl CudaKernelSpec<TopkSoftmaxProblem> for Reference {
    fn id(&self) -> &'static str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &TopkSoftmaxProblem, _: &Chip) -> Fit {
        Fit::LOW
    }

    fn space(&self, _: &TopkSoftmaxProblem, _: &Chip) -> Space {
        Space::single()
    }

    fn plan(&self, p: &TopkSoftmaxProblem, _: &Config, _: &Chip) -> Result<Plan, Rejection> {
        let text = include_str!("reference.cu");
        Ok(Plan {
            source: Source { entry: self.id(), text, headers: &PLAIN_HEADERS, defines: facts(p) },
            threads: 256,
            shared: 0,
            grid: Grid::Blocks(p.rows),
            arguments: arguments(p),
            overlap: false,
        })
    }
}
