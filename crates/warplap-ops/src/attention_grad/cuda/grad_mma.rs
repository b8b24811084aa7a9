//! The tensor cores of every chip from sm_80 on, any length and alignment. Twin of `grad_mma.cu`, which says how; it is
//! launched for keys, then for queries, with `delta.cu` in front.
//!
//! Wins: chips other than Hopper, unaligned heads and heads above 128; sums do not depend on the run. Limits: f16 and
//! bf16, heads of up to 256 elements.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{
    AMPERE, ATTENTION, ATTENTION_AMPERE, ATTENTION_GRAD, Chip, ELEMENT, PACKED, PHILOX, SQUARES, Source,
};

use super::plan::{Chain, all_strides};
use crate::attention::AttentionProblem;
use crate::attention::cuda::listed::listed;
use crate::attention::cuda::plan::{
    NOTHING, align, drops, facts, mask_facts, mask_strides, no_tensor_cores, packed_fact, strides, tiles, totals,
};
use crate::attention_grad::{AttentionGradProblem, slot};
use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Plan, PrePostLaunches, axis};

/// Asynchronous copies, ldmatrix, mma.sync.
#[derive(Clone, Copy)]
pub(super) struct GradMma;

const HEADERS: [(&str, &str); 8] =
    [AMPERE, ELEMENT, ATTENTION, ATTENTION_AMPERE, ATTENTION_GRAD, PHILOX, PACKED, SQUARES];

/// Queries are padded to whole blocks of every setting.
const BLOCK: u64 = 128;

const TILE: [&str; 4] = ["WARPS", "OTHER", "STAGES", "PARTS"];

/// Tiles worth trying, by the width of heads: beyond 128 registers hold half of the columns.
const NARROW: [[i64; 4]; 4] = [[4, 32, 2, 1], [4, 32, 1, 1], [8, 32, 2, 1], [4, 16, 2, 1]];
/// Where squares of a mask have no more than 32 queries.
const SQUARE: [[i64; 4]; 2] = [[2, 32, 2, 2], [2, 16, 1, 2]];
const WIDE: [[i64; 4]; 3] = [[4, 32, 1, 2], [4, 16, 1, 2], [8, 32, 1, 2]];

fn shapes(p: &AttentionProblem) -> &'static [[i64; 4]] {
    match p.mask.tiles() {
        Some(tiles) if tiles.side < 64 => &SQUARE,
        _ if p.d.max(p.dv) <= 128 => &NARROW,
        _ => &WIDE,
    }
}

/// What a launch is for.
#[derive(Clone, Copy)]
enum Side {
    Keys,
    Queries,
}

impl GradMma {
    fn launch(self, p: &AttentionProblem, c: &Config, chip: &Chip, side: Side) -> Result<Plan, Rejection> {
        let mut axes = [0; 4];
        for (to, name) in axes.iter_mut().zip(TILE) {
            *to = axis(c, name)?;
        }
        let [warps, other, stages, parts] = axes;
        if !shapes(p).contains(&axes.map(|v| v as i64)) {
            return Err(Rejection::DoesNotBuild { reason: format!("{c}: not a tile for heads of {}", p.d) });
        }
        // Lines as the kernel pads them, against conflicts of banks.
        let line = |width: u64| width.next_multiple_of(16 * parts) * 2 + 16;
        let shared = (16 * warps + stages * other) * (line(p.d) + line(p.dv));
        let (own, most) = match side {
            Side::Keys => ([other, 16 * warps], p.sq.div_ceil(other) * p.group()),
            Side::Queries => ([16 * warps, other], p.sk.div_ceil(other)),
        };
        let listed = listed(p, own, most)?;
        if shared + listed.bytes > chip.shared_memory {
            let reason = format!("{stages} stages take {shared} bytes of shared memory");
            return Err(Rejection::OverLimits { reason });
        }
        let mut defines = facts(p);
        defines.extend(mask_facts(p).into_iter().filter(|(name, _)| *name == "MASK"));
        defines.extend(listed.facts);
        defines.extend(TILE.into_iter().zip(axes.map(|v| v as i64)));
        defines.extend([("ALIGN", align(p) as i64), ("SHARED", shared as i64), ("SIDE", side as i64)]);
        defines.extend([packed_fact(p), ("PAD", BLOCK as i64)]);
        let chain = chain(p);
        let mut arguments = [slot::Q, slot::K, slot::V, slot::GRAD].map(Argument::Pointer).to_vec();
        let (first, second, output_strides) = match side {
            Side::Keys => (slot::DK, Argument::Pointer(slot::DV), [p.k_strides(), p.v_strides()]),
            Side::Queries => (slot::DQ, NOTHING, [p.q_strides(), p.q_strides()]),
        };
        arguments.extend(if matches!(side, Side::Keys) { chain.scratch_arguments() } else { chain.room_arguments() });
        arguments.extend([slot::MASK, slot::SLOPES, first].map(Argument::Pointer));
        arguments.push(second);
        arguments.extend(chain.numbers(p, chip));
        arguments.extend(all_strides(p));
        arguments.extend(output_strides.map(strides).concat());
        arguments.extend(mask_strides(p));
        arguments.extend(drops(p, slot::SEED));
        arguments.extend([slot::OFFSETS_Q, slot::OFFSETS_K].map(Argument::Pointer));
        arguments.extend(totals(p));
        let block = 16 * warps;
        let tiles = match (side, p.packed) {
            (Side::Queries, _) => tiles(p, block) * p.h,
            (Side::Keys, Some(packed)) => (packed.tk / block + p.b) * p.hkv,
            (Side::Keys, None) => p.sk.div_ceil(block) * p.b * p.hkv,
        };
        Ok(Plan {
            source: Source { entry: "grad_mma", text: include_str!("grad_mma.cu"), headers: &HEADERS, defines },
            threads: 32 * warps as u32,
            shared,
            grid: Grid::Blocks(tiles * parts),
            arguments,
            overlap: chip.capability.0 >= 9,
        })
    }
}

fn chain(p: &AttentionProblem) -> Chain {
    Chain::new(p, BLOCK, 0)
}

impl CudaKernelSpec<AttentionGradProblem> for GradMma {
    fn id(&self) -> &'static str {
        "grad_mma"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, problem: &AttentionGradProblem, chip: &Chip) -> Fit {
        no_tensor_cores(&problem.0, chip).map_or(Fit::HIGH, Fit::aside)
    }

    fn space(&self, problem: &AttentionGradProblem, chip: &Chip) -> Space {
        let (p, chip, all) = (problem.0, chip.clone(), shapes(&problem.0));
        let column = |i: usize| all.iter().map(|tile| tile[i]).collect::<Vec<_>>();
        let axes = TILE.iter().enumerate();
        let space = axes.fold(Space::single(), |space, (i, name)| space.axis(Axis::ints(name, column(i))));
        space.rule(Rule::on("the tile is one worth trying", &TILE, move |c| {
            [Side::Keys, Side::Queries].into_iter().all(|side| GradMma.launch(&p, c, &chip, side).is_ok())
        }))
    }

    fn plan(&self, problem: &AttentionGradProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        self.launch(&problem.0, c, chip, Side::Keys)
    }

    fn beside(&self, problem: &AttentionGradProblem, c: &Config, chip: &Chip) -> Result<PrePostLaunches, Rejection> {
        let p = &problem.0;
        let first = vec![chain(p).delta(p, align(p), chip)];
        Ok(PrePostLaunches { first, last: vec![self.launch(p, c, chip, Side::Queries)?] })
    }
}
