//! A B of few columns on Hopper's tensor cores, a row's blocks dealt out to a cluster. Twin of `wgmma_thin.cu`, which
//! says how.
//!
//! Wins: decoding with 16 to 128 columns. Limits: blocks of 64 or 128, f16 and bf16, rows of B and C of whole 16 bytes.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, ELEMENT, HOPPER, SCALED, Source};

use crate::bsr::BsrProblem;
use crate::bsr::cuda::plan::{
    B, BsrKernelSpec, C, COL_IDX, ROW_PTR, b_col_map, facts, is_half, no_square, no_tma, scale_arguments, spec,
    values_map,
};
use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Plan, axis, int};
use crate::gemm::Layout;

/// Columns of B at the least and at the most: fewer are for plain lanes, more for kernels that share them.
const FEW: std::ops::RangeInclusive<u64> = 9..=256;

/// Columns of a CTA.
const TILES: [u64; 4] = [16, 32, 64, 128];

/// A row's blocks all at once.
pub(crate) struct Thin;

/// The narrowest tile that holds all columns, and the next narrower one.
fn tiles(p: &BsrProblem) -> impl Iterator<Item = u64> {
    let holds = TILES.iter().position(|tile| *tile >= p.n).unwrap_or(TILES.len() - 1);
    TILES[holds.saturating_sub(1)..=holds].iter().rev().copied()
}

/// Bytes of a stage: a tile of a block and a slab of B, which comes in whole panels of 64 columns where it is row-major.
fn stage(p: &BsrProblem, tile: u64) -> u64 {
    8192 + 128 * if p.b == Layout::Row { tile.next_multiple_of(64) } else { tile }
}

/// Bytes of a block of threads: its stages, its sums, and what aligning takes.
fn shared(p: &BsrProblem, tile: u64, split: u64, stages: u64) -> u64 {
    1024 + stages * stage(p, tile) + if split > 1 { tile * 256 } else { 0 }
}

impl CudaKernelSpec<BsrProblem> for Thin {
    fn id(&self) -> &'static str {
        "wgmma_thin"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &BsrProblem, chip: &Chip) -> Fit {
        match no_tma(p, chip).or(no_square(p)) {
            _ if !FEW.contains(&p.n) => Fit::aside("B of 9 to 256 columns"),
            Some(why) => Fit::aside(why),
            None if !is_half(p) => Fit::aside("f16 and bf16 only"),
            None if !matches!(p.bs, 64 | 128) => Fit::aside("blocks of 64 or 128"),
            None => Fit::HIGH,
        }
    }

    fn space(&self, p: &BsrProblem, chip: &Chip) -> Space {
        let (p, most) = (*p, chip.shared_memory - 1024);
        Space::single()
            .axis(Axis::ints("BN", tiles(&p).map(|tile| tile as i64)))
            .axis(Axis::ints("SPLIT", [2, 4, 1, 8]))
            .axis(Axis::ints("STAGES", [6, 3, 12]))
            .rule(Rule::on("shares are of whole fragments", &["BN", "SPLIT"], |c| {
                c.int("BN").is_some_and(|tile| c.int("SPLIT").is_some_and(|split| split <= tile / 8))
            }))
            .rule(Rule::on("the stages fit shared memory", &["BN", "SPLIT", "STAGES"], move |c| {
                let of = |name| c.int(name).and_then(|v| u64::try_from(v).ok()).unwrap_or(1);
                shared(&p, of("BN"), of("SPLIT"), of("STAGES")) <= most
            }))
    }

    fn plan(&self, p: &BsrProblem, c: &Config, _: &Chip) -> Result<Plan, Rejection> {
        let [tile, split, stages] = [axis(c, "BN")?.max(1), axis(c, "SPLIT")?.max(1), axis(c, "STAGES")?];
        let (col, tiles) = (p.b == Layout::Col, p.n.div_ceil(tile));
        let mut defines = facts(p);
        defines.push(("B_COL", i64::from(col)));
        defines
            .extend([("BN", tile), ("SPLIT", split), ("STAGES", stages), ("TILES", tiles)].map(|(n, v)| (n, v as i64)));
        let slab = if col { b_col_map(p, 64, tile) } else { spec(B, p, (p.n, p.k), [64, 64]) };
        let pointers = [C, ROW_PTR, COL_IDX].map(Argument::Pointer);
        let arguments = [values_map(p, [64, 64]), slab].into_iter().chain(pointers).chain([int(p.m), int(p.n)]);
        let (text, headers) = (include_str!("wgmma_thin.cu"), &[HOPPER, ELEMENT, SCALED]);
        Ok(Plan {
            source: Source { entry: self.id(), text, headers, defines },
            threads: 128,
            shared: shared(p, tile, split, stages),
            grid: Grid::Blocks(p.m / 64 * tiles * split),
            arguments: arguments.chain(scale_arguments(p)).collect(),
            overlap: true,
        })
    }
}

impl BsrKernelSpec for Thin {
    fn together(&self, _: &BsrProblem, _: &Config) -> Result<usize, Rejection> {
        Ok(0)
    }
}
