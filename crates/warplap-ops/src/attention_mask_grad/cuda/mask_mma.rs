//! The tensor cores of every chip from sm_80 on, any length and alignment. Twin of `mask_mma.cu`, which says how;
//! `delta.cu` of `attention_grad` goes in front.
//!
//! Wins: always where it fits; sums do not depend on the run. Limits: f16 and bf16, heads of up to 256 elements.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{AMPERE, ATTENTION, ATTENTION_AMPERE, ATTENTION_GRAD, Chip, ELEMENT, PHILOX, Source};

use super::plan::shares;
use crate::attention::cuda::plan::{align, drops, facts, mask_facts, mask_strides, no_tensor_cores};
use crate::attention_grad::cuda::plan::{Chain, all_strides};
use crate::attention_mask_grad::{AttentionMaskGradProblem, slot};
use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Plan, PrePostLaunches, axis};

/// Asynchronous copies, ldmatrix, mma.sync.
#[derive(Clone, Copy)]
pub(super) struct MaskMma;

const HEADERS: [(&str, &str); 6] = [AMPERE, ELEMENT, ATTENTION, ATTENTION_AMPERE, ATTENTION_GRAD, PHILOX];

/// Numbers of queries are padded to so many.
const PADDED: u64 = 128;

const TILE: [&str; 4] = ["WARPS", "TALL", "OTHER", "STAGES"];

/// Tiles worth trying. A warp has 16·TALL queries; more than 1024 scores of a warp do not fit registers.
const TILES: [[i64; 4]; 7] =
    [[4, 1, 64, 2], [8, 1, 64, 2], [4, 2, 32, 2], [8, 2, 32, 2], [4, 1, 64, 3], [4, 1, 32, 2], [4, 1, 32, 1]];

impl CudaKernelSpec<AttentionMaskGradProblem> for MaskMma {
    fn id(&self) -> &'static str {
        "mask_mma"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, AttentionMaskGradProblem(p): &AttentionMaskGradProblem, chip: &Chip) -> Fit {
        no_tensor_cores(p, chip).map_or(Fit::HIGH, Fit::aside)
    }

    fn space(&self, problem: &AttentionMaskGradProblem, chip: &Chip) -> Space {
        let (p, chip) = (*problem, chip.clone());
        let column = |i: usize| TILES.iter().map(|tile| tile[i]).collect::<Vec<_>>();
        let axes = TILE.iter().enumerate();
        let space = axes.fold(Space::single(), |space, (i, name)| space.axis(Axis::ints(name, column(i))));
        space.rule(Rule::on("the tile is one worth trying", &TILE, move |c| MaskMma.plan(&p, c, &chip).is_ok()))
    }

    fn plan(&self, problem: &AttentionMaskGradProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let p = &problem.0;
        let mut axes = [0; 4];
        for (to, name) in axes.iter_mut().zip(TILE) {
            *to = axis(c, name)?;
        }
        let [warps, tall, other, stages] = axes;
        if !TILES.contains(&axes.map(|v| v as i64)) {
            return Err(Rejection::DoesNotBuild { reason: format!("{c}: not a tile worth trying") });
        }
        // Lines as the kernel pads them, against conflicts of banks.
        let (block, line) = (16 * tall * warps, p.d.max(p.dv).next_multiple_of(16) * 2 + 16);
        let shared = stages * (block + other) * line;
        if shared > chip.shared_memory {
            let reason = format!("{stages} stages take {shared} bytes of shared memory");
            return Err(Rejection::OverLimits { reason });
        }
        let mut defines = facts(p);
        defines.extend(mask_facts(p));
        defines.extend(TILE.into_iter().zip(axes.map(|v| v as i64)));
        defines.extend([("ALIGN", align(p) as i64), ("SHARED", shared as i64)]);
        let chain = Chain::new(p, PADDED, 0);
        let mut arguments = [slot::Q, slot::K, slot::V, slot::GRAD].map(Argument::Pointer).to_vec();
        arguments.extend(chain.scratch_arguments());
        arguments.extend([slot::MASK, slot::SLOPES, slot::DMASK].map(Argument::Pointer));
        arguments.extend(chain.numbers(p, chip));
        arguments.extend(all_strides(p));
        arguments.extend(mask_strides(p));
        arguments.extend(drops(p, slot::SEED));
        arguments.extend(shares(p));
        Ok(Plan {
            source: Source { entry: self.id(), text: include_str!("mask_mma.cu"), headers: &HEADERS, defines },
            threads: 32 * warps as u32,
            shared,
            grid: Grid::Blocks(p.masks().iter().product::<u64>() * p.sq.div_ceil(block) * p.sk.div_ceil(other)),
            arguments,
            overlap: chip.capability.0 >= 9,
        })
    }

    fn beside(
        &self,
        problem: &AttentionMaskGradProblem,
        _: &Config,
        chip: &Chip,
    ) -> Result<PrePostLaunches, Rejection> {
        let p = &problem.0;
        Ok(PrePostLaunches { first: vec![Chain::new(p, PADDED, 0).delta(p, align(p), chip)], last: Vec::new() })
    }
}
