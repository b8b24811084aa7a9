//! A B of few columns without tensor cores. Twin of `thin_rows.cu`, which says how.
//!
//! Wins: decoding, B of 1 to 16 columns. Limits: blocks of 16, 32, 64 or 128 rows and columns, chips from sm_80 on.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, ELEMENT, SCALED, Source};

use crate::bsr::BsrProblem;
use crate::bsr::cuda::plan::{B, BsrKernelSpec, C, COL_IDX, ROW_PTR, VALUES, facts, no_usual_blocks, scale_arguments};
use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Plan, axis, int};
use crate::gemm::Layout;

/// Columns of B at the most.
const FEW: u64 = 16;

/// Sums that a lane holds at the most.
const SUMS: u64 = 64;

/// A few rows of a block row a CTA.
pub(crate) struct ThinRows;

/// Lines of a block that a warp reads at once.
fn tall(p: &BsrProblem) -> u64 {
    32 / (p.bc * p.dtype.bytes() as u64 / 16).max(1)
}

impl CudaKernelSpec<BsrProblem> for ThinRows {
    fn id(&self) -> &'static str {
        "thin_rows"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &BsrProblem, chip: &Chip) -> Fit {
        match no_usual_blocks(p) {
            _ if p.n > FEW => Fit::aside("B of at most 16 columns"),
            _ if p.is_bytes() => Fit::aside("f32, f16 and bf16 only"),
            _ if chip.capability < (8, 0) => Fit::aside("needs a chip from sm_80 on"),
            Some(why) => Fit::aside(why),
            None if tall(p) > p.bs => Fit::aside("a warp reads more lines than a block has"),
            None if p.tf32 => Fit::aside("sums of full f32 are another problem"),
            None if p.m.max(p.k) > i32::MAX as u64 => Fit::aside("sizes must fit 31 bits"),
            None => Fit::HIGH,
        }
    }

    fn space(&self, p: &BsrProblem, _: &Chip) -> Space {
        let rows = [1, 2, 4, 8].map(|passes| passes * tall(p));
        let fits = |rows: &u64| p.bs.is_multiple_of(*rows) && (*rows / tall(p) * p.n <= SUMS || *rows == tall(p));
        Space::single()
            .axis(Axis::ints("ROWS", rows.into_iter().filter(fits).map(|rows| rows as i64)))
            .axis(Axis::ints("WARPS", [4, 2, 8, 1]))
    }

    fn plan(&self, p: &BsrProblem, c: &Config, _: &Chip) -> Result<Plan, Rejection> {
        let [rows, warps] = [axis(c, "ROWS")?.max(1), axis(c, "WARPS")?];
        let mut defines = facts(p);
        defines.extend([("ROWS", rows), ("WARPS", warps), ("COLS", p.n)].map(|(n, v)| (n, v as i64)));
        defines.push(("B_COL", i64::from(p.b == Layout::Col)));
        let buffers = [VALUES, B, C, ROW_PTR, COL_IDX].map(Argument::Pointer);
        let text = include_str!("thin_rows.cu");
        Ok(Plan {
            source: Source { entry: self.id(), text, headers: &[ELEMENT, SCALED], defines },
            threads: 32 * warps as u32,
            shared: 0,
            grid: Grid::Blocks(p.m / rows),
            arguments: buffers.into_iter().chain([int(p.m), int(p.k)]).chain(scale_arguments(p)).collect(),
            overlap: false,
        })
    }
}

impl BsrKernelSpec for ThinRows {
    fn together(&self, _: &BsrProblem, _: &Config) -> Result<usize, Rejection> {
        Ok(0)
    }
}
