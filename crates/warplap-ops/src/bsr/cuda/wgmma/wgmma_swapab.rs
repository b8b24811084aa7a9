//! Swapped operands: columns of B take the tall side of the tensor cores, so that only stored blocks are multiplied.
//! Twin of `wgmma_swapab.cu`, which says how.
//!
//! Wins: blocks of 16 and 32, unless nearly empty. Limits: f16/bf16, rows of B and C of whole 16 bytes, at most 4096
//! block columns.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, ELEMENT, HOPPER, SCALED, SMALL_BLOCKS, Source};

use crate::bsr::BsrProblem;
use crate::bsr::cuda::plan::{
    BsrKernelSpec, COL_IDX, MARGIN, ORDER, ROW_PTR, VALUES, b_col_map, b_map, c_map, dealt, facts, is_wide,
    no_small_blocks, persistent, scale_arguments,
};
use crate::cuda::plan::{Argument, CudaKernelSpec, Plan, axis, int, stages};
use crate::gemm::Layout;

/// The transposed product.
pub(crate) struct SwapAb;

/// Warpgroups that multiply.
const LINES: u64 = 2;
/// Sums of one warpgroup: rows times columns of C.
const SUMS: u64 = 128 * 128;
/// Block columns whose lists fit beside the stages.
const COLUMNS: u64 = 4096;

/// Block rows that one CTA owns.
fn rows(p: &BsrProblem, bn: u64) -> u64 {
    LINES * SUMS / bn / p.bs
}

impl CudaKernelSpec<BsrProblem> for SwapAb {
    fn id(&self) -> &'static str {
        "wgmma_swapab"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &BsrProblem, chip: &Chip) -> Fit {
        match no_small_blocks(p, chip) {
            Some(why) => Fit::aside(why),
            None if p.k / p.bs > COLUMNS => Fit::aside("too many block columns for its lists"),
            None => Fit::HIGH,
        }
    }

    fn space(&self, p: &BsrProblem, _: &Chip) -> Space {
        let space = Space::single()
            .axis(Axis::ints("BN", if p.n > 128 { vec![256, 128] } else { vec![128] }))
            .axis(Axis::ints("SC", if p.bs == 16 { [4, 2] } else { [2, 1] }))
            .axis(Axis::ints("GROUPED", [1, 0]));
        dealt(space, p)
    }

    fn plan(&self, p: &BsrProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let [bn, slabs] = [axis(c, "BN")?.max(64), axis(c, "SC")?.max(1)];
        let (rows, columns, col) = (rows(p, bn), p.k / p.bs, p.b == Layout::Col);
        let stage = slabs * (p.bs * bn * 2 + rows * p.bs * p.bs * 2);
        // Two block rows of C a warpgroup on their way out, and the lists: a mark and a place a column, a word a stage
        // and warpgroup.
        let lists = (columns * 6 + columns.div_ceil(slabs) * LINES * 4 + 32).next_multiple_of(16);
        let fixed = LINES * 2 * p.bs * bn * 2 + lists;
        let deep = stages(chip, stage, fixed + MARGIN, 1, 8)?;
        let mut defines = facts(p);
        defines.extend([("B_COL", i64::from(col)), ("WIDE", i64::from(is_wide(p)))]);
        defines.extend(
            [("BN", bn), ("SC", slabs), ("STAGES", deep), ("DEAL", axis(c, "DEAL")?)].map(|(n, v)| (n, v as i64)),
        );
        let mut arguments = vec![
            Argument::Pointer(VALUES),
            if col { b_col_map(p, p.bs, 64) } else { b_map(p, p.bs, bn) },
            c_map(p, p.bs),
            Argument::Pointer(ROW_PTR),
            Argument::Pointer(COL_IDX),
            Argument::Pointer(ORDER),
            int(p.m),
            int(p.n),
            int(columns),
        ];
        arguments.extend(scale_arguments(p));
        let tiles = (p.m / p.bs).div_ceil(rows) * p.n.div_ceil(bn);
        Ok(Plan {
            source: Source {
                entry: self.id(),
                text: include_str!("wgmma_swapab.cu"),
                headers: &[HOPPER, ELEMENT, SCALED, SMALL_BLOCKS],
                defines,
            },
            threads: 128 * (LINES as u32 + 1),
            shared: deep * stage + fixed + 1024,
            grid: persistent(tiles, 1, 1, chip),
            arguments,
            overlap: true,
        })
    }
}

impl BsrKernelSpec for SwapAb {
    fn together(&self, p: &BsrProblem, c: &Config) -> Result<usize, Rejection> {
        Ok(if axis(c, "GROUPED")? == 0 { 0 } else { rows(p, axis(c, "BN")?.max(64)) as usize })
    }
}
