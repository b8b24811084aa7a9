//! A B of few columns through mma.sync. Twin of `thin_mma.cu`, which says how.
//!
//! Wins: decoding, B of 8 to 64 columns. Limits: blocks of 32, 64 or 128 rows and columns, f16 and bf16, B column-major,
//! chips from sm_80 on.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{AMPERE, Chip, ELEMENT, SCALED, Source};

use super::plan::{B, BsrTwin, C, COL_IDX, ROW_PTR, VALUES, facts, is_half, scale_arguments};
use crate::bsr::BsrProblem;
use crate::cuda::plan::{Argument, Grid, Plan, Twin, axis, int};
use crate::gemm::Layout;

/// Columns of B at the least and at the most: fewer are for plain lanes, more for kernels that share them.
const FEW: std::ops::RangeInclusive<u64> = 2..=64;

/// A few rows of a block row a CTA.
pub(super) struct ThinMma;

/// Sums that a lane holds.
fn sums(p: &BsrProblem, rows: u64) -> u64 {
    rows / 16 * p.n.div_ceil(8) * 4
}

/// Bytes in which warps hand over their sums, and in which those of all lie in the end.
fn shared(p: &BsrProblem, rows: u64, warps: u64) -> u64 {
    (warps / 2).max(1) * sums(p, rows) * 128
}

impl Twin<BsrProblem> for ThinMma {
    fn id(&self) -> &'static str {
        "thin_mma"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &BsrProblem, chip: &Chip) -> Fit {
        let usual = [p.bs, p.bc].iter().all(|size| matches!(size, 32 | 64 | 128));
        match () {
            () if !FEW.contains(&p.n) => Fit::aside("B of 2 to 64 columns"),
            () if chip.capability < (8, 0) => Fit::aside("needs a chip from sm_80 on"),
            () if !is_half(p) => Fit::aside("f16 and bf16 only"),
            () if p.b == Layout::Row => Fit::aside("B must be column-major"),
            () if !usual => Fit::aside("blocks of 32, 64 or 128"),
            () if p.m.max(p.k).max(p.nnz * p.bc) > i32::MAX as u64 => Fit::aside("sizes must fit 31 bits"),
            () => Fit::HIGH,
        }
    }

    fn space(&self, p: &BsrProblem, chip: &Chip) -> Space {
        let (p, most) = (*p, chip.shared_memory);
        let rows = [32, 16, 64].into_iter().filter(move |rows| p.bs.is_multiple_of(*rows) && sums(&p, *rows) <= 64);
        Space::single()
            .axis(Axis::ints("ROWS", rows.map(|rows| rows as i64)))
            .axis(Axis::ints("WARPS", [8, 4, 16]))
            .rule(Rule::on("the sums fit shared memory, and many warps hold few", &["ROWS", "WARPS"], move |c| {
                let of = |name| c.int(name).and_then(|v| u64::try_from(v).ok()).unwrap_or(1);
                let (rows, warps) = (of("ROWS"), of("WARPS"));
                shared(&p, rows, warps) <= most && (warps <= 8 || sums(&p, rows) <= 32)
            }))
    }

    fn plan(&self, p: &BsrProblem, c: &Config, _: &Chip) -> Result<Plan, Rejection> {
        let [rows, warps] = [axis(c, "ROWS")?.max(1), axis(c, "WARPS")?];
        let mut defines = facts(p);
        defines.extend([("ROWS", rows), ("WARPS", warps), ("COLS", p.n)].map(|(n, v)| (n, v as i64)));
        let buffers = [VALUES, B, C, ROW_PTR, COL_IDX].map(Argument::Pointer);
        let (text, headers) = (include_str!("thin_mma.cu"), &[AMPERE, ELEMENT, SCALED]);
        Ok(Plan {
            source: Source { entry: self.id(), text, headers, defines },
            threads: 32 * warps as u32,
            shared: shared(p, rows, warps),
            grid: Grid::Blocks(p.m / rows),
            arguments: buffers.into_iter().chain([int(p.m), int(p.k)]).chain(scale_arguments(p)).collect(),
            overlap: false,
        })
    }
}

impl BsrTwin for ThinMma {
    fn together(&self, _: &BsrProblem, _: &Config) -> Result<usize, Rejection> {
        Ok(0)
    }
}
