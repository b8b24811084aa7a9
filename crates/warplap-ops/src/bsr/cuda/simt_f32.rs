//! Plain lanes: float32 blocks, every product and sum an f32 fused multiply-add. Twin of `simt_f32.cu`.
//!
//! Wins: float32. Limits: blocks of 16, 32, 64 or 128, B row-major, rows of B and C of whole 16 bytes.

use warplap_core::candidate::SourceHash;
use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, ELEMENT, HOPPER, SCALED, Source};

use super::plan::{
    B, BsrKernelSpec, C, COL_IDX, MARGIN, ORDER, ROW_PTR, VALUES, facts, no_rows, no_tma, no_usual_blocks,
    scale_arguments, spec,
};
use crate::bsr::BsrProblem;
use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Plan, axis, int};

/// Plain lanes.
pub(super) struct SimtF32;

/// Threads of a block, each with 8 by 8 sums.
const THREADS: u64 = 128;

impl CudaKernelSpec<BsrProblem> for SimtF32 {
    fn id(&self) -> &'static str {
        "simt_f32"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &BsrProblem, chip: &Chip) -> Fit {
        match no_tma(p, chip) {
            Some(why) => Fit::aside(why),
            None if p.dtype != DType::F32 => Fit::aside("f32 only"),
            None => no_usual_blocks(p).or(no_rows(p)).map_or(Fit::HIGH, Fit::aside),
        }
    }

    fn space(&self, p: &BsrProblem, chip: &Chip) -> Space {
        let (p, chip) = (*p, chip.clone());
        // Three blocks of threads stay on a multiprocessor, where their stages leave the room.
        Space::single()
            .axis(Axis::ints("STAGES", [2, 3]))
            .axis(Axis::ints("BK", if p.bc == 16 { vec![16] } else { vec![16, 32] }))
            .axis(Axis::ints("GROUPED", [0, 1]))
            .rule(Rule::on("the stages fit shared memory", &["STAGES", "BK"], move |c| {
                let of = |name| c.int(name).and_then(|v| u64::try_from(v).ok()).unwrap_or(0);
                of("STAGES") * tile(&p, of("BK")).1 + MARGIN <= chip.shared_memory
            }))
    }

    fn plan(&self, p: &BsrProblem, c: &Config, _: &Chip) -> Result<Plan, Rejection> {
        let [deep, bk] = [axis(c, "STAGES")?, axis(c, "BK")?];
        let (columns, stage) = tile(p, bk);
        let mut defines = facts(p);
        defines.extend([("BK", bk), ("STAGES", deep)].map(|(n, v)| (n, v as i64)));
        let mut arguments = vec![
            Argument::Pointer(VALUES),
            spec(B, p, (p.n, p.k), [columns.min(256) as u32, bk as u32]),
            Argument::Pointer(C),
            Argument::Pointer(ROW_PTR),
            Argument::Pointer(COL_IDX),
            Argument::Pointer(ORDER),
            int(p.m),
            int(p.n),
        ];
        arguments.extend(scale_arguments(p));
        Ok(Plan {
            source: Source {
                entry: self.id(),
                text: include_str!("simt_f32.cu"),
                headers: &[HOPPER, ELEMENT, SCALED],
                defines,
            },
            threads: THREADS as u32,
            shared: deep * stage,
            grid: Grid::Blocks(p.m / p.bs.min(64) * p.n.div_ceil(columns)),
            arguments,
            overlap: true,
        })
    }
}

/// Columns of a tile, and bytes of a stage: A turned, its lines padded by 16 bytes and all of it to whole 128, and B.
fn tile(p: &BsrProblem, bk: u64) -> (u64, u64) {
    let rows = p.bs.min(64);
    let columns = THREADS / (rows / 8) * 8;
    (columns, ((bk * (rows + 4)).next_multiple_of(32) + bk * columns) * 4)
}

impl BsrKernelSpec for SimtF32 {
    fn together(&self, _: &BsrProblem, c: &Config) -> Result<usize, Rejection> {
        Ok(axis(c, "GROUPED")? as usize)
    }
}
