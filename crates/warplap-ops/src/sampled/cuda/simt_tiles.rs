//! Tiles on plain lanes: 4 by 4 sums a thread. Twin of `simt_tiles.cu`, which says how.
//!
//! Wins: float32, odd block sizes, rows that do not end on 16 bytes. Limits: none.

use warplap_core::candidate::SourceHash;
use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, ELEMENT, Source};

use super::plan::{arguments, blocks, facts};
use crate::cuda::plan::{CudaKernelSpec, Grid, Plan};
use crate::sampled::SampledProblem;

/// Register tiles on plain lanes.
pub(super) struct SimtTiles;

impl CudaKernelSpec<SampledProblem> for SimtTiles {
    fn id(&self) -> &'static str {
        "simt_tiles"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &SampledProblem, _: &Chip) -> Fit {
        if p.pattern.dtype == DType::F32 { Fit::HIGH } else { Fit::MEDIUM }
    }

    fn space(&self, _: &SampledProblem, _: &Chip) -> Space {
        Space::single()
    }

    fn plan(&self, p: &SampledProblem, _: &Config, _: &Chip) -> Result<Plan, Rejection> {
        let bs = p.pattern.bs;
        let tile = [64, 32, 16].into_iter().find(|t| bs.is_multiple_of(*t)).unwrap_or(8);
        let mut defines = facts(p);
        defines.push(("TILE", tile as i64));
        let (text, parts) = (include_str!("simt_tiles.cu"), bs / tile);
        Ok(Plan {
            source: Source { entry: self.id(), text, headers: &[ELEMENT], defines },
            threads: (tile * tile / 16).max(32) as u32,
            shared: 0,
            grid: Grid::Blocks(blocks(p) * parts * parts),
            arguments: arguments(p)?,
            overlap: false,
        })
    }
}
