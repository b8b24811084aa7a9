//! Fill: a dense kernel whose warps take A from the stored blocks, zeros where there is none. Twin of `wgmma_fill.cu`,
//! which says how.
//!
//! Wins: blocks of 32, blocks of 16 that are few, rectangular ones. Limits: f16/bf16, blocks of 16, 32 or 64 rows and
//! columns, rows of B and C of whole 16 bytes, at most 4096 block columns.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, ELEMENT, HOPPER, SCALED, SMALL_BLOCKS, Source};

use crate::bsr::BsrProblem;
use crate::bsr::cuda::plan::{
    BsrKernelSpec, COL_IDX, MARGIN, ORDER, ROW_PTR, VALUES, b_col_map, b_map, c_map, dealt, facts, is_half, is_wide,
    no_tma, persistent, scale_arguments,
};
use crate::cuda::plan::{Argument, CudaKernelSpec, Plan, axis, int, stages};
use crate::gemm::Layout;

/// Tiles of A from blocks and zeros.
pub(crate) struct Fill;

/// Rows and columns of a tile that won somewhere on an H200.
const TILES: [[i64; 2]; 2] = [[128, 256], [64, 128]];
/// Rows and columns that a block may have.
const SIZES: [u64; 3] = [16, 32, 64];
/// Block columns whose lists fit beside the stages.
const COLUMNS: u64 = 4096;

impl CudaKernelSpec<BsrProblem> for Fill {
    fn id(&self) -> &'static str {
        "wgmma_fill"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &BsrProblem, chip: &Chip) -> Fit {
        match no_tma(p, chip) {
            Some(why) => Fit::aside(why),
            None if !is_half(p) => Fit::aside("f16 and bf16 only"),
            None if ![p.bs, p.bc].iter().all(|size| SIZES.contains(size)) => Fit::aside("blocks of 16, 32 or 64"),
            None if p.is_square() && p.bs == 64 => Fit::aside("wgmma_union takes square blocks of 64"),
            None if p.k / p.bc > COLUMNS => Fit::aside("too many block columns for its lists"),
            None => Fit::HIGH,
        }
    }

    fn space(&self, p: &BsrProblem, _: &Chip) -> Space {
        let tiles = if p.density() > 0.08 { TILES } else { [TILES[1], TILES[0]] };
        let column = move |i: usize| tiles.into_iter().map(move |t| t[i]);
        let space = Space::single()
            .axis(Axis::ints("BM", column(0)))
            .axis(Axis::ints("BN", column(1)))
            .axis(Axis::ints("SC", if p.bc == 64 { vec![1] } else { vec![64 / p.bc as i64, 32 / p.bc as i64] }))
            // Rows that use the same columns meet in a tile, in a part of it, or not at all.
            .axis(Axis::ints("GROUPED", [1, 2, 0]))
            .rule(Rule::on("the tile is one that won somewhere", &["BM", "BN"], |c| {
                TILES.contains(&["BM", "BN"].map(|a| c.int(a).unwrap_or(0)))
            }));
        dealt(space, p)
    }

    fn plan(&self, p: &BsrProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let [bm, bn, slabs] = [axis(c, "BM")?.max(64), axis(c, "BN")?, axis(c, "SC")?.max(1)];
        let (rows, lines, col) = ((bm / p.bs).max(1), (bm / 64).min(2), p.b == Layout::Col);
        let resident = 3 - lines;
        let columns = (p.k / p.bc).next_multiple_of(slabs);
        let stage = slabs * p.bc * (bn * 2 + rows * p.bs * 2);
        // One panel of C a warpgroup on its way out, and the lists: a mark and a place a column, a word a stage and
        // warpgroup.
        let fixed = lines * 8192 + (columns * 6 + columns / slabs * lines * 4).next_multiple_of(16);
        let deep = stages(chip, stage, fixed + MARGIN, resident, 8)?;
        let mut defines = facts(p);
        defines.extend([("B_COL", i64::from(col)), ("WIDE", i64::from(is_wide(p)))]);
        let axes = [("BM", bm), ("BN", bn), ("SC", slabs), ("STAGES", deep), ("DEAL", axis(c, "DEAL")?)];
        defines.extend(axes.map(|(n, v)| (n, v as i64)));
        let mut arguments = vec![
            Argument::Pointer(VALUES),
            if col { b_col_map(p, p.bc, bn) } else { b_map(p, p.bc, bn) },
            c_map(p, p.bs),
            Argument::Pointer(ROW_PTR),
            Argument::Pointer(COL_IDX),
            Argument::Pointer(ORDER),
            int(p.m),
            int(p.n),
            int(p.k / p.bc),
        ];
        arguments.extend(scale_arguments(p));
        let tiles = (p.m / p.bs).div_ceil(rows) * p.n.div_ceil(bn);
        Ok(Plan {
            source: Source {
                entry: self.id(),
                text: include_str!("wgmma_fill.cu"),
                headers: &[HOPPER, ELEMENT, SCALED, SMALL_BLOCKS],
                defines,
            },
            threads: 128 * (lines as u32 + 1),
            shared: deep * stage + fixed + 1024,
            grid: persistent(tiles, 1, resident, chip),
            arguments,
            overlap: true,
        })
    }
}

impl BsrKernelSpec for Fill {
    fn together(&self, p: &BsrProblem, c: &Config) -> Result<usize, Rejection> {
        let rows = [0, axis(c, "BM")?.max(64), 64][axis(c, "GROUPED")?.min(2) as usize];
        Ok((rows / p.bs) as usize)
    }
}
