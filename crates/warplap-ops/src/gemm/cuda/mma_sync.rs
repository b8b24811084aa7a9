//! The tensor cores of every chip from sm_80 on, any alignment. Twin of `mma_sync.cu`, which says how.
//!
//! Wins: unaligned shapes, chips before and after Hopper, tf32. Limits: f16, bf16, and f32 where tf32 is allowed.

use warplap_core::candidate::SourceHash;
use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, Source};

use super::plan::{HEADERS, columns, facts, no_copies, no_tma, plain, tiles, vector};
use crate::cuda::plan::{CudaKernelSpec, Grid, Plan, axis};
use crate::gemm::{GemmProblem, Layout};

/// Asynchronous copies, ldmatrix, mma.sync.
pub(super) struct MmaSync;

/// Tiles worth trying: BM, BN, warps.
const LARGE: [[i64; 3]; 3] = [[128, 128, 8], [128, 256, 8], [128, 128, 4]];
const SMALL: [[i64; 3]; 4] = [[64, 64, 4], [128, 64, 4], [64, 128, 4], [128, 128, 8]];

impl CudaKernelSpec<GemmProblem> for MmaSync {
    fn id(&self) -> &'static str {
        "mma_sync"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &GemmProblem, chip: &Chip) -> Fit {
        if let Some(why) = no_copies(p, chip) {
            return Fit::aside(why);
        }
        if p.dtype == DType::F32 && !p.tf32 {
            return Fit::aside("f32 only where tf32 is allowed (tf32=true)");
        }
        match no_tma(p, chip) {
            Some(_) => Fit::HIGH,
            // Most kernels of the copy engine stand aside too.
            None if !p.n.is_multiple_of(8) => Fit::HIGH,
            None if tiles(p) <= u64::from(chip.multiprocessors) => Fit::MEDIUM,
            None => Fit::LOW,
        }
    }

    fn space(&self, p: &GemmProblem, chip: &Chip) -> Space {
        let good: &'static [[i64; 3]] = if tiles(p) >= 2 * u64::from(chip.multiprocessors) { &LARGE } else { &SMALL };
        let column = |i: usize| good.iter().map(move |t| t[i]);
        let few = tiles(p) <= u64::from(chip.multiprocessors);
        let (p, chip) = (*p, chip.clone());
        Space::single()
            .axis(Axis::ints("BM", column(0)))
            .axis(Axis::ints("BN", column(1)))
            .axis(Axis::ints("WARPS", column(2)))
            .axis(Axis::ints("BK", if p.dtype == DType::F32 { [16, 32] } else { [32, 64] }))
            .axis(Axis::ints("STAGES", if few { [3, 2] } else { [3, 4] }))
            .axis(Axis::ints("SLICES", if few { vec![2, 1, 4] } else { vec![1] }))
            .axis(Axis::ints("GROUP", [8]))
            .rule(Rule::on("slices cut the smallest tiles", &["BM", "BN", "STAGES", "SLICES"], |c| {
                let of = |a| c.int(a).unwrap_or(0);
                of("SLICES") == 1 || (of("BM") * of("BN") <= 8192 && of("STAGES") < 4)
            }))
            .rule(Rule::on("the tile is one worth trying", &["BM", "BN", "WARPS"], move |c| {
                good.contains(&["BM", "BN", "WARPS"].map(|a| c.int(a).unwrap_or(0)))
            }))
            .rule(Rule::on("the stages fit", &["BM", "BN", "WARPS", "BK", "STAGES", "SLICES", "GROUP"], move |c| {
                MmaSync.plan(&p, c, &chip).is_ok()
            }))
    }

    fn plan(&self, p: &GemmProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let [bm, bn, bk] = [axis(c, "BM")?, axis(c, "BN")?, axis(c, "BK")?];
        let [warps, stages, group] = [axis(c, "WARPS")?, axis(c, "STAGES")?, axis(c, "GROUP")?];
        let slices = axis(c, "SLICES")?.max(1);
        let size = p.dtype.bytes() as u64;
        // Lines as the kernel pads them.
        let tile = |rows: u64, turned: bool| {
            let pad = if size == 4 && turned { 32 } else { 16 };
            if turned { bk * (rows * size + pad) } else { rows * (bk * size + pad) }
        };
        let shared = slices * stages * (tile(bm, p.a == Layout::Col) + tile(bn, p.b == Layout::Row));
        if shared > chip.shared_memory {
            let reason = format!("{stages} stages take {shared} bytes of shared memory");
            return Err(Rejection::OverLimits { reason });
        }
        if (slices - 1) * bm * bn * 4 > shared || slices * warps > 32 {
            let reason = format!("the sums of {slices} slices do not fit where their stages were");
            return Err(Rejection::OverLimits { reason });
        }
        let pairs = p.align.is_multiple_of(2 * size) && p.ldc.is_multiple_of(2);
        let mut defines = facts(p);
        defines.retain(|(name, _)| *name != "BATCH");
        let axes = [
            ("BM", bm),
            ("BN", bn),
            ("BK", bk),
            ("WARPS", warps),
            ("STAGES", stages),
            ("GROUP", group),
            ("SLICES", slices),
        ];
        defines.extend(axes.map(|(n, v)| (n, v as i64)));
        let vectors = [("VEC_A", vector(p, p.lda)), ("VEC_B", vector(p, p.ldb)), ("VEC_C", u64::from(pairs))];
        defines.extend(vectors.map(|(n, v)| (n, v as i64)));
        defines.push(("SHARED", shared as i64));
        Ok(Plan {
            source: Source { entry: self.id(), text: include_str!("mma_sync.cu"), headers: &HEADERS, defines },
            threads: 32 * (warps * slices) as u32,
            shared,
            grid: Grid::Blocks(p.m.div_ceil(bm) * p.n.div_ceil(columns(p, bn)) * p.batch),
            arguments: plain(p),
            overlap: chip.capability.0 >= 9,
        })
    }
}
