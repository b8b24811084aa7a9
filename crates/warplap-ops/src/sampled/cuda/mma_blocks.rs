//! Blocks on tensor cores: one block of threads a stored block. Twin of `mma_blocks.cu`, which says how.
//!
//! Wins: half types. Limits: blocks of 16, 32, 64 or 128; rows of row-major factors of whole 16 bytes.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{AMPERE, Chip, ELEMENT, Source};

use super::plan::{arguments, blocks, facts, no_tensor_cores};
use crate::cuda::plan::{CudaKernelSpec, Grid, Plan, axis};
use crate::gemm::Layout;
use crate::sampled::SampledProblem;

/// A block of threads a stored block.
pub(super) struct MmaBlocks;

/// Numbers of n that one stage holds.
const DEEP: u64 = 64;

impl CudaKernelSpec<SampledProblem> for MmaBlocks {
    fn id(&self) -> &'static str {
        "mma_blocks"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &SampledProblem, chip: &Chip) -> Fit {
        match no_tensor_cores(p) {
            Some(why) => Fit::aside(why),
            None if chip.capability < (8, 0) => Fit::aside("needs a chip from sm_80 on"),
            None if !matches!(p.pattern.bs, 16 | 32 | 64 | 128) => Fit::aside("blocks of 16, 32, 64 or 128"),
            None => Fit::HIGH,
        }
    }

    fn space(&self, _: &SampledProblem, _: &Chip) -> Space {
        Space::single().axis(Axis::ints("STAGES", [4, 3, 6]))
    }

    fn plan(&self, p: &SampledProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let (bs, stages) = (p.pattern.bs, axis(c, "STAGES")?);
        let tile = bs.min(64);
        // Lines are padded by 16 bytes, so that neighbours meet different banks.
        let side = |layout| match layout {
            Layout::Row => tile * (DEEP * 2 + 16),
            Layout::Col => DEEP * (tile * 2 + 16),
        };
        let shared = stages * (side(p.g) + side(p.pattern.b));
        if shared > chip.shared_memory {
            return Err(Rejection::OverLimits { reason: format!("{stages} stages do not fit shared memory") });
        }
        let mut defines = facts(p);
        defines.push(("STAGES", stages as i64));
        let (text, parts) = (include_str!("mma_blocks.cu"), bs / tile);
        Ok(Plan {
            source: Source { entry: self.id(), text, headers: &[AMPERE, ELEMENT], defines },
            threads: 128,
            shared,
            grid: Grid::Blocks(blocks(p) * parts * parts),
            arguments: arguments(p)?,
            overlap: chip.capability.0 >= 9,
        })
    }
}
