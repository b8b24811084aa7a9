//! A B of few columns through mma.sync. Twin of `thin_mma.cu`, which says how.
//!
//! Wins: decoding, B of 8 to 256 columns. Limits: blocks of 16, 32, 64 or 128 rows and columns, f16 and bf16, chips from
//! sm_80 on.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{AMPERE, Chip, ELEMENT, SCALED, Source};

use crate::bsr::BsrProblem;
use crate::bsr::cuda::plan::{
    B, BsrKernelSpec, C, COL_IDX, ROW_PTR, VALUES, facts, is_half, no_usual_blocks, scale_arguments,
};
use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Plan, axis, int};
use crate::gemm::Layout;

/// Columns of B at the least and at the most: fewer are for plain lanes, more for kernels that share them.
const FEW: std::ops::RangeInclusive<u64> = 2..=256;

/// Columns of a CTA at the most.
const TILES: [u64; 2] = [64, 32];

/// Sums that a lane holds at the most.
const SUMS: u64 = 64;

/// A few rows of a block row a CTA.
pub(crate) struct ThinMma;

/// The tiles of columns that a problem has a choice of.
fn tiles(p: &BsrProblem) -> Vec<u64> {
    // Of rows of other lengths a lane reads single elements, which is for a few.
    let even = |tile: &u64| p.b == Layout::Col || p.n.is_multiple_of(fragments(p, *tile));
    let some: Vec<u64> = TILES.into_iter().filter(|tile| *tile < p.n && even(tile)).collect();
    if p.n <= TILES[0] { [p.n].into_iter().chain(some).collect() } else { some }
}

/// Fragments of eight columns. Of a row-major B a lane reads as many neighbours at once: a power of two.
fn fragments(p: &BsrProblem, tile: u64) -> u64 {
    let all = tile.div_ceil(8);
    if p.b == Layout::Row { all.next_power_of_two() } else { all }
}

/// Sums that a lane holds.
fn sums(p: &BsrProblem, tile: u64, rows: u64) -> u64 {
    rows / 16 * fragments(p, tile) * 4
}

/// Bytes in which warps hand over their sums, and in which those of all lie in the end, one float apart.
fn shared(p: &BsrProblem, tile: u64, rows: u64, warps: u64) -> u64 {
    (warps / 2 * sums(p, tile, rows) * 128).max(fragments(p, tile) * 8 * (rows + 1) * 4)
}

impl CudaKernelSpec<BsrProblem> for ThinMma {
    fn id(&self) -> &'static str {
        "thin_mma"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &BsrProblem, chip: &Chip) -> Fit {
        match no_usual_blocks(p) {
            _ if !FEW.contains(&p.n) => Fit::aside("B of 2 to 256 columns"),
            _ if chip.capability < (8, 0) => Fit::aside("needs a chip from sm_80 on"),
            _ if !is_half(p) => Fit::aside("f16 and bf16 only"),
            Some(why) => Fit::aside(why),
            None if p.m.max(p.k).max(p.nnz * p.bc) > i32::MAX as u64 => Fit::aside("sizes must fit 31 bits"),
            None if tiles(p).is_empty() => Fit::aside("rows of more than 64 columns must be whole runs of 4"),
            None => Fit::HIGH,
        }
    }

    fn space(&self, p: &BsrProblem, chip: &Chip) -> Space {
        let (p, most) = (*p, chip.shared_memory);
        let rows = [32, 16, 64].into_iter().filter(move |rows| p.bs.is_multiple_of(*rows));
        Space::single()
            .axis(Axis::ints("COLS", tiles(&p).into_iter().map(|tile| tile as i64)))
            .axis(Axis::ints("ROWS", rows.map(|rows| rows as i64)))
            .axis(Axis::ints("WARPS", [4, 8, 2, 1]))
            .rule(Rule::on("the sums fit registers and shared memory", &["COLS", "ROWS", "WARPS"], move |c| {
                let of = |name| c.int(name).and_then(|v| u64::try_from(v).ok()).unwrap_or(1);
                let (tile, rows, warps) = (of("COLS"), of("ROWS"), of("WARPS"));
                shared(&p, tile, rows, warps) <= most && sums(&p, tile, rows) <= SUMS
            }))
    }

    fn plan(&self, p: &BsrProblem, c: &Config, _: &Chip) -> Result<Plan, Rejection> {
        let [tile, rows, warps] = [axis(c, "COLS")?.max(1), axis(c, "ROWS")?.max(1), axis(c, "WARPS")?];
        let mut defines = facts(p);
        let sizes = [("ROWS", rows), ("WARPS", warps), ("COLS", tile), ("ALL", p.n), ("NI", fragments(p, tile))];
        defines.extend(sizes.map(|(n, v)| (n, v as i64)));
        defines.push(("B_COL", i64::from(p.b == Layout::Col)));
        let buffers = [VALUES, B, C, ROW_PTR, COL_IDX].map(Argument::Pointer);
        let (text, headers) = (include_str!("thin_mma.cu"), &[AMPERE, ELEMENT, SCALED]);
        Ok(Plan {
            source: Source { entry: self.id(), text, headers, defines },
            threads: 32 * warps as u32,
            shared: shared(p, tile, rows, warps),
            grid: Grid::Blocks(p.m / rows * p.n.div_ceil(tile)),
            arguments: buffers.into_iter().chain([int(p.m), int(p.k)]).chain(scale_arguments(p)).collect(),
            overlap: false,
        })
    }
}

impl BsrKernelSpec for ThinMma {
    fn together(&self, _: &BsrProblem, _: &Config) -> Result<usize, Rejection> {
        Ok(0)
    }
}
