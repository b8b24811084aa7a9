//! The reference on CUDA: one block a row. Twin of `reference.cu`, which says how.
//!
//! Wins: never by design. Limits: none; it fits everything and is the fallback.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, ELEMENT, EPILOGUE, Source};

use super::plan::{arguments, facts};
use crate::cuda::plan::{CudaKernelSpec, Grid, Plan};
use crate::gated::GatedProblem;

/// One block a row.
pub(super) struct Reference;

impl CudaKernelSpec<GatedProblem> for Reference {
    fn id(&self) -> &'static str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &GatedProblem, _: &Chip) -> Fit {
        Fit::LOW
    }

    fn space(&self, _: &GatedProblem, _: &Chip) -> Space {
        Space::single()
    }

    fn plan(&self, p: &GatedProblem, _: &Config, _: &Chip) -> Result<Plan, Rejection> {
        let text = include_str!("reference.cu");
        Ok(Plan {
            source: Source { entry: self.id(), text, headers: &[EPILOGUE, ELEMENT], defines: facts(p) },
            threads: 256,
            shared: 0,
            grid: Grid::Blocks(p.rows),
            arguments: arguments(p),
            overlap: false,
        })
    }
}
