//! Strips: B streams past many block rows, each warp multiplies what its own rows store. Twin of `mma_strips.cu`.
//!
//! Wins: nowhere in the table of docs/results/bsr.md since operands are swapped; with a column-major B that was not measured. Limits: f16/bf16, rows of B and
//! C of whole 16 bytes, at most 2048 block columns.

use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, ELEMENT, HOPPER, SCALED, Source};

use super::plan::{
    BsrTwin, C, COL_IDX, ORDER, ROW_PTR, VALUES, b_col_map, facts, no_small_blocks, persistent, scale_arguments, spec,
};
use crate::bsr::BsrProblem;
use crate::cuda::plan::{Argument, Plan, Twin, axis, int, stages};
use crate::gemm::Layout;

/// Strips of 64 rows, a warp each.
pub(super) struct Strips;

/// Warps that multiply.
const WARPS: u64 = 8;
/// Block columns whose lists fit beside the stages.
const COLUMNS: u64 = 2048;

impl Twin<BsrProblem> for Strips {
    fn id(&self) -> &'static str {
        "mma_strips"
    }

    fn texts(&self) -> [&'static str; 2] {
        [include_str!("mma_strips.cu"), include_str!("mma_strips.rs")]
    }

    fn fit(&self, p: &BsrProblem, chip: &Chip) -> Fit {
        match no_small_blocks(p, chip) {
            Some(why) => Fit::aside(why),
            None if p.k / p.bs > COLUMNS => Fit::aside("too many block columns for its lists"),
            None if p.bs == 16 || p.b == Layout::Col => Fit::HIGH,
            None => Fit::MEDIUM,
        }
    }

    fn space(&self, p: &BsrProblem, _: &Chip) -> Space {
        let caps = if p.bs == 16 { [16, 8] } else { [4, 2] };
        Space::single().axis(Axis::ints("CAP", caps)).axis(Axis::ints("GROUPED", [1, 0]))
    }

    fn plan(&self, p: &BsrProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let cap = axis(c, "CAP")?;
        let columns = p.k / p.bs;
        let ring = (2 * cap * p.bs * p.bs * 2).max(8192);
        // Lists of ten bytes a column; static memory of barriers, items and its alignment.
        let fixed = WARPS * ring + (columns * 10).next_multiple_of(16) + 1024;
        let deep = stages(chip, 8192, fixed + 3072, 1, 16)?;
        let mut defines = facts(p);
        let col = p.b == Layout::Col;
        defines.extend([("B_COL", i64::from(col)), ("WARPS", WARPS as i64)]);
        defines.extend([("CAP", cap as i64), ("STAGES", deep as i64)]);
        let b = if col { b_col_map(p, p.bs, 64) } else { spec(super::plan::B, p, (p.n, p.k), [64, p.bs as u32]) };
        let mut arguments = vec![
            Argument::Pointer(VALUES),
            b,
            Argument::Pointer(C),
            Argument::Pointer(ROW_PTR),
            Argument::Pointer(COL_IDX),
            Argument::Pointer(ORDER),
            int(p.m),
            int(p.n),
            int(columns),
        ];
        arguments.extend(scale_arguments());
        let tiles = (p.m / p.bs).div_ceil(WARPS * 64 / p.bs) * p.n.div_ceil(64);
        Ok(Plan {
            source: Source {
                entry: self.id(),
                text: include_str!("mma_strips.cu"),
                headers: &[HOPPER, ELEMENT, SCALED],
                defines,
            },
            threads: 32 * WARPS as u32 + 128,
            shared: deep * 8192 + fixed,
            grid: persistent(tiles, 1, 1, chip),
            arguments,
            overlap: true,
        })
    }
}

impl BsrTwin for Strips {
    fn together(&self, p: &BsrProblem, c: &Config) -> Result<usize, Rejection> {
        Ok(if axis(c, "GROUPED")? == 0 { 0 } else { (WARPS * 64 / p.bs) as usize })
    }
}
