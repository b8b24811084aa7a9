//! Strict f32 on the plain lanes. Twin of `simt.cu`, which says how.
//!
//! Wins: strict f32. Limits: f32; any layout, shape and alignment.

use warplap_core::candidate::SourceHash;
use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, Source};

use super::plan::{HEADERS, facts, no_copies, plain, vector};
use crate::cuda::plan::{CudaKernelSpec, Grid, Plan, axis};
use crate::gemm::{GemmProblem, Layout};

/// Register tiles of f32.
pub(super) struct Simt;

/// Tiles worth trying: BM, BN, BK, TM, TN.
const TILES: [[i64; 5]; 4] = [[128, 128, 8, 8, 8], [64, 64, 16, 4, 8], [128, 64, 16, 8, 8], [128, 128, 16, 8, 8]];
const NAMES: [&str; 5] = ["BM", "BN", "BK", "TM", "TN"];

impl CudaKernelSpec<GemmProblem> for Simt {
    fn id(&self) -> &'static str {
        "simt"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &GemmProblem, chip: &Chip) -> Fit {
        match no_copies(p, chip) {
            Some(why) => Fit::aside(why),
            None if p.dtype != DType::F32 => Fit::aside("f32 only"),
            None if p.tf32 => Fit::LOW,
            None => Fit::HIGH,
        }
    }

    fn space(&self, _: &GemmProblem, _: &Chip) -> Space {
        let column = |i: usize| TILES.iter().map(move |t| t[i]);
        Space::single()
            .axis(Axis::ints("BM", column(0)))
            .axis(Axis::ints("BN", column(1)))
            .axis(Axis::ints("BK", column(2)))
            .axis(Axis::ints("TM", column(3)))
            .axis(Axis::ints("TN", column(4)))
            .axis(Axis::ints("STAGES", [3, 2, 4]))
            .axis(Axis::ints("GROUP", [8]))
            .rule(Rule::on("the tile is one worth trying", &NAMES, |c| {
                TILES.contains(&NAMES.map(|a| c.int(a).unwrap_or(0)))
            }))
    }

    fn plan(&self, p: &GemmProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let [bm, bn, bk] = [axis(c, "BM")?, axis(c, "BN")?, axis(c, "BK")?];
        let [tm, tn] = [axis(c, "TM")?.max(1), axis(c, "TN")?.max(1)];
        let [stages, group] = [axis(c, "STAGES")?, axis(c, "GROUP")?];
        // What is turned on its way is copied element by element.
        let copied = |straight: bool, ld| if straight { vector(p, ld) } else { 4 };
        let mut defines = facts(p);
        defines.retain(|(name, _)| *name != "BATCH");
        let axes = [("BM", bm), ("BN", bn), ("BK", bk), ("TM", tm), ("TN", tn), ("STAGES", stages), ("GROUP", group)];
        defines.extend(axes.map(|(n, v)| (n, v as i64)));
        defines.extend([
            ("VEC_A", copied(p.a == Layout::Col, p.lda) as i64),
            ("VEC_B", copied(p.b == Layout::Row, p.ldb) as i64),
            ("VEC_C", i64::from(vector(p, p.ldc) == 16)),
        ]);
        let shared = stages * bk * (bm + bn + 8) * 4;
        defines.push(("SHARED", shared as i64));
        Ok(Plan {
            source: Source { entry: self.id(), text: include_str!("simt.cu"), headers: &HEADERS, defines },
            threads: (bm * bn / (tm * tn)) as u32,
            shared,
            grid: Grid::Blocks(p.m.div_ceil(bm) * p.n.div_ceil(bn) * p.batch),
            arguments: plain(p),
            overlap: chip.capability.0 >= 9,
        })
    }
}
