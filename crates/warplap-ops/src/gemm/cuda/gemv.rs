//! GEMV: one to four rows of A, plain wide loads of B, no tensor cores. Twin of `gemv.cu`.
//!
//! Wins: M <= 4, above all M = 1. Limits: f16/bf16, aligned, A row-major.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, Source};

use super::plan::{HEADERS, Side, epilogue, facts, no_tma, pointer, sizes};
use crate::cuda::plan::{CudaKernelSpec, Grid, Plan, axis, int};
use crate::gemm::{GemmProblem, Layout};

/// Wide loads of B.
pub(super) struct Gemv;

impl CudaKernelSpec<GemmProblem> for Gemv {
    fn id(&self) -> &'static str {
        "gemv"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &GemmProblem, chip: &Chip) -> Fit {
        match no_tma(p, chip) {
            Some(why) => Fit::aside(why),
            None if p.a == Layout::Col => Fit::aside("A must be row-major"),
            None if p.m > 4 => Fit::aside("made for at most four rows"),
            None => Fit::HIGH,
        }
    }

    fn space(&self, p: &GemmProblem, _: &Chip) -> Space {
        if p.b == Layout::Col {
            return Space::single()
                .axis(Axis::ints("WARPS", [8, 4]))
                .axis(Axis::ints("UNROLL", [2, 4]))
                .axis(Axis::ints("ROWS", [1, 2]));
        }
        let of = |c: &Config, axis| c.int(axis).unwrap_or(0);
        Space::single()
            .axis(Axis::ints("WARPS", [8, 16]))
            .axis(Axis::ints("UNROLL", [1, 2]))
            .axis(Axis::ints("LANES", [8, 16]))
            .axis(Axis::ints("SPLIT", [8, 1, 2]))
            .rule(Rule::on("K is cut 16 ways at least", &["WARPS", "LANES", "SPLIT"], move |c| {
                32 / of(c, "LANES").max(1) * of(c, "WARPS") * of(c, "SPLIT") >= 16
            }))
    }

    fn plan(&self, p: &GemmProblem, c: &Config, _: &Chip) -> Result<Plan, Rejection> {
        let [warps, unroll] = [axis(c, "WARPS")?.max(1), axis(c, "UNROLL")?];
        let mut defines = facts(p);
        defines.retain(|(name, _)| *name != "A_COL");
        defines.extend([("WARPS", warps as i64), ("UNROLL", unroll as i64), ("MROWS", p.m as i64)]);
        let blocks = if p.b == Layout::Col {
            let rows = axis(c, "ROWS")?.max(1);
            defines.extend([("ROWS", rows as i64), ("SPLIT", 1)]);
            p.n.div_ceil(warps * rows)
        } else {
            let [lanes, split] = [axis(c, "LANES")?.max(1), axis(c, "SPLIT")?.max(1)];
            defines.extend([("LANES", lanes as i64), ("SPLIT", split as i64)]);
            p.n.div_ceil(lanes * 8) * split
        };
        let mut arguments = [Side::A, Side::B, Side::C].map(pointer).to_vec();
        arguments.extend(&sizes(p)[1..3]);
        arguments.extend([p.lda, p.ldb, p.ldc].map(int));
        arguments.extend(epilogue(p));
        Ok(Plan {
            source: Source { entry: self.id(), text: include_str!("gemv.cu"), headers: &HEADERS, defines },
            threads: warps as u32 * 32,
            shared: 0,
            grid: Grid::Blocks(blocks * p.batch),
            arguments,
            overlap: true,
        })
    }
}
