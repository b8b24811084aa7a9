//! tf32 on tensor cores: float32 blocks whose factors may be cut to eleven bits. Twin of `mma_tf32.cu`, which says how.
//!
//! Wins: float32 where the problem allows tf32. Limits: blocks of 16, 32, 64 or 128, B row-major, rows of B and C of
//! whole 16 bytes.

use warplap_core::candidate::SourceHash;
use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{AMPERE, Chip, ELEMENT, SCALED, Source};

use crate::bsr::BsrProblem;
use crate::bsr::cuda::plan::{
    B, BsrKernelSpec, C, COL_IDX, ORDER, ROW_PTR, VALUES, facts, in_stages, no_mma, no_rows, scale_arguments,
};
use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Plan, axis, int};

/// tf32 on tensor cores.
pub(crate) struct MmaTf32;

impl CudaKernelSpec<BsrProblem> for MmaTf32 {
    fn id(&self) -> &'static str {
        "mma_tf32"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &BsrProblem, chip: &Chip) -> Fit {
        match no_mma(p, chip).or(no_rows(p)) {
            _ if p.dtype != DType::F32 => Fit::aside("f32 only"),
            _ if !p.tf32 => Fit::aside("the problem does not allow tf32"),
            Some(why) => Fit::aside(why),
            None => Fit::HIGH,
        }
    }

    fn space(&self, p: &BsrProblem, chip: &Chip) -> Space {
        let space = Space::single()
            .axis(Axis::ints("BN", if p.n > 128 { vec![256, 128] } else { vec![128] }))
            .axis(Axis::ints("BK", if p.bc == 16 { vec![16] } else { vec![16, 32] }));
        in_stages(space, p, chip, stage)
    }

    fn plan(&self, p: &BsrProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let [bn, bk, deep] = [axis(c, "BN")?.max(1), axis(c, "BK")?, axis(c, "STAGES")?];
        let mut defines = facts(p);
        defines.extend([("BN", bn), ("BK", bk), ("STAGES", deep)].map(|(n, v)| (n, v as i64)));
        let buffers = [VALUES, B, C, ROW_PTR, COL_IDX, ORDER].map(Argument::Pointer);
        let arguments = buffers.into_iter().chain([int(p.m), int(p.n)]).chain(scale_arguments(p)).collect();
        let (text, headers) = (include_str!("mma_tf32.cu"), &[AMPERE, ELEMENT, SCALED]);
        Ok(Plan {
            source: Source { entry: self.id(), text, headers, defines },
            threads: 256,
            shared: deep * stage(p, bn, bk),
            grid: Grid::Blocks(p.m / p.bs.min(64) * p.n.div_ceil(bn)),
            arguments,
            overlap: chip.capability.0 >= 9,
        })
    }
}

/// Bytes of a stage: lines of A padded by four numbers, those of B by eight.
fn stage(p: &BsrProblem, bn: u64, bk: u64) -> u64 {
    (p.bs.min(64) * (bk + 4) + bk * (bn + 8)) * 4
}

impl BsrKernelSpec for MmaTf32 {
    fn together(&self, _: &BsrProblem, c: &Config) -> Result<usize, Rejection> {
        Ok(axis(c, "GROUPED")? as usize)
    }
}
