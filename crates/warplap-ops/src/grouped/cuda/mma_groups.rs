//! The tensor cores of every chip from sm_80 on, any size and alignment. Twin of `mma_groups.cu`, which says how.
//!
//! Wins: chips other than Hopper, sizes that the copy engine does not take. Limits: f16, bf16.

use warplap_core::candidate::SourceHash;
use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{AMPERE, Chip, ELEMENT, Source};

use super::plan::{GROUPS, arguments, facts, most_tiles, no_tma};
use crate::cuda::plan::{CudaKernelSpec, Grid, Plan, axis};
use crate::gemm::Layout;
use crate::grouped::GroupedProblem;

/// Asynchronous copies, ldmatrix, mma.sync.
pub(super) struct MmaGroups;

/// Tiles worth trying: BM, BN, BK, warps, and whether the matrix takes the tall side.
const MANY: [[i64; 5]; 3] = [[128, 128, 32, 8, 0], [64, 128, 32, 4, 0], [64, 64, 64, 4, 0]];
const FEW: [[i64; 5]; 4] = [[128, 16, 64, 4, 1], [128, 32, 64, 4, 1], [64, 16, 64, 4, 1], [64, 64, 64, 4, 0]];

/// Bytes of the widest copy, up to 16, that lines of so many elements of two bytes allow; buffers lie as their lines
/// do.
fn vector(line: u64) -> u64 {
    [16, 8, 4].into_iter().find(|v| (2 * line).is_multiple_of(*v)).unwrap_or(2)
}

impl CudaKernelSpec<GroupedProblem> for MmaGroups {
    fn id(&self) -> &'static str {
        "mma_groups"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &GroupedProblem, chip: &Chip) -> Fit {
        if chip.capability.0 < 8 {
            return Fit::aside("needs asynchronous copies (sm_80 or newer)");
        }
        if !matches!(p.dtype, DType::F16 | DType::Bf16) {
            return Fit::aside("f16 and bf16 only");
        }
        if no_tma(p, chip).is_some() { Fit::HIGH } else { Fit::LOW }
    }

    fn space(&self, p: &GroupedProblem, chip: &Chip) -> Space {
        let good: &'static [[i64; 5]] = if p.rows >= 32 * p.experts { &MANY } else { &FEW };
        let column = |i: usize| good.iter().map(move |t| t[i]);
        let (p, chip) = (*p, chip.clone());
        Space::single()
            .axis(Axis::ints("BM", column(0)))
            .axis(Axis::ints("BN", column(1)))
            .axis(Axis::ints("BK", column(2)))
            .axis(Axis::ints("WARPS", column(3)))
            .axis(Axis::ints("SWAP", column(4)))
            .axis(Axis::ints("STAGES", [3, 4, 2]))
            .rule(Rule::on("the tile is one worth trying", &["BM", "BN", "BK", "WARPS", "SWAP"], move |c| {
                good.contains(&["BM", "BN", "BK", "WARPS", "SWAP"].map(|a| c.int(a).unwrap_or(-1)))
            }))
            .rule(Rule::on("the stages fit", &["BM", "BN", "BK", "WARPS", "SWAP", "STAGES"], move |c| {
                MmaGroups.plan(&p, c, &chip).is_ok()
            }))
    }

    fn plan(&self, p: &GroupedProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let [bm, bn, bk] = [axis(c, "BM")?, axis(c, "BN")?, axis(c, "BK")?];
        let [warps, stages, swap] = [axis(c, "WARPS")?, axis(c, "STAGES")?, axis(c, "SWAP")?];
        // Lines as the kernel pads them.
        let tile = |rows: u64, turned: bool| if turned { bk * (rows * 2 + 16) } else { rows * (bk * 2 + 16) };
        let flat = p.w == Layout::Row;
        let (a, b) = (tile(bm, swap == 1 && flat), tile(bn, swap == 0 && flat));
        let (shared, lists) = (stages * (a + b), 8 * (p.experts + 1));
        if shared + lists > chip.shared_memory {
            let reason = format!("{stages} stages take {shared} bytes of shared memory");
            return Err(Rejection::OverLimits { reason });
        }
        let (tall, wide) = if swap == 1 { (bn, bm) } else { (bm, bn) };
        let mut defines = facts(p);
        let axes = [("BM", bm), ("BN", bn), ("BK", bk), ("WARPS", warps), ("STAGES", stages), ("SWAP", swap)];
        defines.extend(axes.map(|(n, v)| (n, v as i64)));
        let lines = [("VEC_X", vector(p.k)), ("VEC_W", vector(if flat { p.n } else { p.k }))];
        defines.extend(lines.map(|(n, v)| (n, v as i64)));
        defines.extend([("VEC_Y", i64::from(p.n.is_multiple_of(2))), ("SHARED", shared as i64)]);
        let headers = &[AMPERE, ELEMENT, GROUPS];
        Ok(Plan {
            source: Source { entry: self.id(), text: include_str!("mma_groups.cu"), headers, defines },
            threads: 32 * warps as u32,
            shared,
            grid: Grid::Blocks(most_tiles(p, tall) * p.n.div_ceil(wide)),
            arguments: arguments(p),
            overlap: chip.capability.0 >= 9,
        })
    }
}
