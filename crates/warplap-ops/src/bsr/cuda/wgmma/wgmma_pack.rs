//! Pack: small blocks are stacked into tiles of 64 rows as they arrive. Twin of `wgmma_pack.cu`, which says how.
//!
//! Wins: blocks of 32 of which one in a hundred is stored. Limits: f16/bf16, B row-major, rows of B and C of whole 16
//! bytes.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, ELEMENT, HOPPER, SCALED, SMALL_BLOCKS, Source};

use crate::bsr::BsrProblem;
use crate::bsr::cuda::plan::{
    BsrKernelSpec, COL_IDX, MARGIN, ORDER, ROW_PTR, b_map, c_map, facts, is_wide, no_rows, no_small_blocks, persistent,
    scale_arguments, values_map,
};
use crate::cuda::plan::{Argument, CudaKernelSpec, Plan, axis, int, stages};

/// Small blocks in tall tiles.
pub(crate) struct Pack;

/// Below this share of blocks it was ahead of the others on an H200.
const FEW: f64 = 0.03;
/// Lines of 64 rows of one block, each a warpgroup's.
const LINES: u64 = 2;

impl CudaKernelSpec<BsrProblem> for Pack {
    fn id(&self) -> &'static str {
        "wgmma_pack"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &BsrProblem, chip: &Chip) -> Fit {
        match no_small_blocks(p, chip) {
            Some(why) => Fit::aside(why),
            None => {
                no_rows(p).map_or(if p.bs == 32 && p.density() < FEW { Fit::HIGH } else { Fit::MEDIUM }, Fit::aside)
            }
        }
    }

    fn space(&self, p: &BsrProblem, _: &Chip) -> Space {
        Space::single()
            .axis(Axis::ints("BN", if p.n > 256 { vec![256, 128] } else { vec![128, 256] }))
            .axis(Axis::ints("CM", [1, 2]))
            .axis(Axis::ints("ORDER", [0, 1]))
            .axis(Axis::ints("GROUPED", [1, 0]))
            .rule(Rule::on("long rows come first only where rows are grouped", &["ORDER", "GROUPED"], |c| {
                c.int("ORDER") == Some(0) || c.int("GROUPED") == Some(1)
            }))
    }

    fn plan(&self, p: &BsrProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let [bn, cm, order] = [axis(c, "BN")?, axis(c, "CM")?.max(1), axis(c, "ORDER")?];
        let stage = bn * 128 + LINES * 8192;
        let slots = 2;
        let fixed = LINES * slots * 8192;
        let deep = stages(chip, stage, fixed + MARGIN, 1, 6)?;
        let mut defines = facts(p);
        defines.extend([("WIDE", i64::from(is_wide(p))), ("PASSING", 1), ("CONS", LINES as i64)]);
        let axes = [("BN", bn), ("CM", cm), ("ORDER", order), ("STAGES", deep), ("SLOTS", slots)];
        defines.extend(axes.map(|(n, v)| (n, v as i64)));
        let rows = cm * LINES * 64 / p.bs;
        let mut arguments = vec![
            values_map(p, [p.bs as u32; 2]),
            b_map(p, p.bs, bn),
            c_map(p, p.bs),
            Argument::Pointer(ROW_PTR),
            Argument::Pointer(COL_IDX),
            Argument::Pointer(ORDER),
            int(p.m),
            int(p.n),
            int(p.nnz.max(1) * p.bs),
        ];
        arguments.extend(scale_arguments(p));
        let tiles = (p.m / p.bs).div_ceil(rows) * p.n.div_ceil(bn);
        Ok(Plan {
            source: Source {
                entry: self.id(),
                text: include_str!("wgmma_pack.cu"),
                headers: &[HOPPER, ELEMENT, SCALED, SMALL_BLOCKS],
                defines,
            },
            threads: 128 * (LINES as u32 + 1),
            shared: deep * stage + fixed + 1024,
            grid: persistent(tiles, cm, 1, chip),
            arguments,
            overlap: true,
        })
    }
}

impl BsrKernelSpec for Pack {
    fn together(&self, p: &BsrProblem, c: &Config) -> Result<usize, Rejection> {
        Ok(if axis(c, "GROUPED")? == 0 { 0 } else { (axis(c, "CM")? * LINES * 64 / p.bs) as usize })
    }
}
