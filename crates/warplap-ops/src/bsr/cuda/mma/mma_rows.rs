//! Half types through mma.sync, for chips from sm_80 on. Twin of `mma_rows.cu`, which says how.
//!
//! Wins: chips without wgmma. Limits: blocks of 16, 32, 64 or 128 rows and columns, C row-major, rows of B and C of
//! whole 16 bytes.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{AMPERE, Chip, ELEMENT, SCALED, Source};

use crate::bsr::BsrProblem;
use crate::bsr::cuda::plan::{
    B, BsrKernelSpec, C, COL_IDX, ORDER, ROW_PTR, VALUES, facts, in_stages, is_half, no_mma, scale_arguments,
};
use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Plan, axis, int};
use crate::gemm::Layout;

/// One line of rows a CTA.
pub(crate) struct MmaRows;

impl CudaKernelSpec<BsrProblem> for MmaRows {
    fn id(&self) -> &'static str {
        "mma_rows"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &BsrProblem, chip: &Chip) -> Fit {
        match no_mma(p, chip) {
            _ if !is_half(p) => Fit::aside("f16 and bf16 only"),
            Some(why) => Fit::aside(why),
            None if p.c == Layout::Col => Fit::aside("C must be row-major"),
            // Where there is wgmma, its kernels share more of B.
            None if chip.is_hopper() => Fit::LOW,
            None => Fit::HIGH,
        }
    }

    fn space(&self, p: &BsrProblem, chip: &Chip) -> Space {
        let space = Space::single()
            .axis(Axis::ints("BN", if p.n > 128 { vec![128, 256] } else { vec![128] }))
            .axis(Axis::ints("BK", [32, 64, 16].into_iter().filter(|bk| p.bc.is_multiple_of(*bk)).map(|bk| bk as i64)));
        in_stages(space, p, chip, stage)
    }

    fn plan(&self, p: &BsrProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let [bn, bk, deep] = [axis(c, "BN")?.max(1), axis(c, "BK")?, axis(c, "STAGES")?];
        let mut defines = facts(p);
        defines.extend([("BN", bn), ("BK", bk), ("STAGES", deep)].map(|(n, v)| (n, v as i64)));
        defines.push(("B_COL", i64::from(p.b == Layout::Col)));
        let buffers = [VALUES, B, C, ROW_PTR, COL_IDX, ORDER].map(Argument::Pointer);
        let sizes = [int(p.m), int(p.n), int(p.k)];
        let (text, headers) = (include_str!("mma_rows.cu"), &[AMPERE, ELEMENT, SCALED]);
        Ok(Plan {
            source: Source { entry: self.id(), text, headers, defines },
            threads: 256,
            shared: deep * stage(p, bn, bk),
            grid: Grid::Blocks(p.m / p.bs.min(64) * p.n.div_ceil(bn)),
            arguments: buffers.into_iter().chain(sizes).chain(scale_arguments(p)).collect(),
            overlap: chip.capability.0 >= 9,
        })
    }
}

/// Bytes of a stage: every line is padded by 16.
fn stage(p: &BsrProblem, bn: u64, bk: u64) -> u64 {
    let b = if p.b == Layout::Col { bn * (bk * 2 + 16) } else { bk * (bn * 2 + 16) };
    p.bs.min(64) * (bk * 2 + 16) + b
}

impl BsrKernelSpec for MmaRows {
    fn together(&self, _: &BsrProblem, c: &Config) -> Result<usize, Rejection> {
        Ok(axis(c, "GROUPED")? as usize)
    }
}
