//! The tensor cores of every chip from sm_80 on, any length and alignment. Twin of `flash_mma.cu`, which says how.
//!
//! Wins: chips other than Hopper, unaligned heads, short sequences. Limits: f16 and bf16, heads of up to 256 elements.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{AMPERE, ATTENTION, ATTENTION_AMPERE, Chip, ELEMENT, PACKED, PHILOX, SQUARES, Source};

use super::listed::listed;
use super::plan::{
    align, all_strides, drops, facts, is_short, mask_facts, no_tensor_cores, no_tiles, numbers, packed_fact, pointers,
    tiles, totals,
};
use crate::attention::{AttentionProblem, slot};
use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Plan, axis};

/// Asynchronous copies, ldmatrix, mma.sync.
pub(super) struct FlashMma;

const HEADERS: [(&str, &str); 7] = [AMPERE, ELEMENT, ATTENTION, ATTENTION_AMPERE, PHILOX, PACKED, SQUARES];

/// Tiles worth trying: BLOCK_M, BLOCK_N, WARPS. Sums, weights and queries of a warp's rows are in registers: wide heads
/// have narrow blocks of keys.
const LONG: [[i64; 3]; 5] = [[128, 64, 4], [64, 64, 4], [128, 64, 8], [128, 32, 4], [64, 32, 4]];
const SHORT: [[i64; 3]; 5] = [[64, 64, 4], [64, 32, 4], [32, 64, 2], [128, 64, 8], [128, 32, 4]];
/// Where a mask is of small squares.
const SQUARE: [[i64; 3]; 2] = [[64, 64, 4], [32, 32, 2]];
const WIDE: [[i64; 3]; 4] = [[64, 32, 4], [64, 64, 4], [64, 16, 4], [128, 16, 8]];

/// Registers of a thread that a tile may take, measured; the others are for addresses and the running softmax.
const MOST_REGISTERS: u64 = 200;

/// Registers of a thread that a tile takes: sums, scores, a mask's and Q's elements.
fn registers(p: &AttentionProblem, [block_m, block_n, warps]: [u64; 3]) -> u64 {
    let strips = block_m / (16 * warps).max(1);
    let (wide, out) = (p.d.next_multiple_of(16), p.dv.next_multiple_of(16));
    let kept = if strips * wide <= 128 { wide / 4 } else { 4 };
    let masked = if p.mask.is_by_pair() { block_n / 4 } else { 0 };
    strips * (out / 2 + block_n / 2 + masked + kept)
}

impl CudaKernelSpec<AttentionProblem> for FlashMma {
    fn id(&self) -> &'static str {
        "flash_mma"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &AttentionProblem, chip: &Chip) -> Fit {
        no_tensor_cores(p, chip).or_else(|| no_tiles(p)).map_or(Fit::HIGH, Fit::aside)
    }

    fn space(&self, p: &AttentionProblem, chip: &Chip) -> Space {
        let short = is_short(p, chip);
        let all: &[[i64; 3]] = match p.d.max(p.dv) {
            _ if p.mask.tiles().is_some_and(|tiles| tiles.side < 128) => &SQUARE,
            129.. => &WIDE,
            _ if short => &SHORT,
            _ => &LONG,
        };
        // The first value of every axis together are where a search begins.
        let holds = |tile: &[i64; 3]| registers(p, tile.map(|v| v as u64)) <= MOST_REGISTERS;
        let good: Vec<[i64; 3]> = all.iter().copied().filter(holds).collect();
        let column = |i: usize| good.iter().map(|t| t[i]).collect::<Vec<_>>();
        let (p, chip) = (*p, chip.clone());
        Space::single()
            .axis(Axis::ints("BLOCK_M", column(0)))
            .axis(Axis::ints("BLOCK_N", column(1)))
            .axis(Axis::ints("WARPS", column(2)))
            .axis(Axis::ints("STAGES", if short { [2, 1, 3] } else { [1, 2, 3] }))
            .rule(Rule::on("the tile is one worth trying", &["BLOCK_M", "BLOCK_N", "WARPS"], move |c| {
                good.contains(&["BLOCK_M", "BLOCK_N", "WARPS"].map(|a| c.int(a).unwrap_or(0)))
            }))
            .rule(Rule::on("the stages fit", &["BLOCK_M", "BLOCK_N", "WARPS", "STAGES"], move |c| {
                FlashMma.plan(&p, c, &chip).is_ok()
            }))
    }

    fn plan(&self, p: &AttentionProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let [block_m, block_n] = [axis(c, "BLOCK_M")?, axis(c, "BLOCK_N")?];
        let [warps, stages] = [axis(c, "WARPS")?, axis(c, "STAGES")?];
        let strips = [16 * warps, 32 * warps];
        if !strips.contains(&block_m)
            || !(1..=8).contains(&warps)
            || stages == 0
            || block_n == 0
            || !block_n.is_multiple_of(16)
        {
            let reason = format!("{warps} warps, {stages} stages: not for a tile of {block_m} by {block_n}");
            return Err(Rejection::DoesNotBuild { reason });
        }
        // Lines as the kernel pads them, against conflicts of banks.
        let line = |width: u64| width.next_multiple_of(16) * 2 + 16;
        let shared = block_m * line(p.d) + stages * block_n * (line(p.d) + line(p.dv));
        let listed = listed(p, [block_m, block_n], p.sk.div_ceil(block_n))?;
        if shared + listed.bytes > chip.shared_memory {
            let reason = format!("{stages} stages take {shared} bytes of shared memory");
            return Err(Rejection::OverLimits { reason });
        }
        if registers(p, [block_m, block_n, warps]) > MOST_REGISTERS {
            let reason = format!("a tile of {block_m} by {block_n} takes more registers than {warps} warps have");
            return Err(Rejection::OverLimits { reason });
        }
        let mut defines = facts(p);
        defines.extend(mask_facts(p));
        defines.extend(listed.facts);
        let axes = [("BLOCK_M", block_m), ("BLOCK_N", block_n), ("WARPS", warps), ("STAGES", stages)];
        defines.extend(axes.map(|(n, v)| (n, v as i64)));
        defines.extend([("ALIGN", align(p) as i64), ("SHARED", shared as i64), packed_fact(p)]);
        let offsets = [slot::OFFSETS_Q, slot::OFFSETS_K].map(Argument::Pointer);
        let last = [drops(p, slot::SEED), offsets, totals(p)].concat();
        let text = include_str!("flash_mma.cu");
        Ok(Plan {
            source: Source { entry: self.id(), text, headers: &HEADERS, defines },
            threads: 32 * warps as u32,
            shared,
            grid: Grid::Blocks(tiles(p, block_m) * p.h),
            arguments: [pointers(), numbers(p, chip), all_strides(p), last].concat(),
            // With squares the assembler finds a way to the first copy that does not wait for the kernel in front.
            overlap: chip.capability.0 >= 9 && p.mask.tiles().is_none(),
        })
    }
}
