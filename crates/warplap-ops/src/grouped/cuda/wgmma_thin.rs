//! Thin: few rows an expert, whose matrix takes the tall side of the tensor cores. Twin of `wgmma_thin.cu`, which says
//! how.
//!
//! Wins: 1 to 64 rows an expert. Limits: f16/bf16, aligned, n and k multiples of 8 (k of 128 where w is row-major).

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, Source};

use super::plan::{COPYING, facts, map_w, map_x, most_tiles, no_tma, sizes};
use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Operand, Plan, axis, stages};
use crate::gemm::Layout;
use crate::grouped::GroupedProblem;
use crate::grouped::slot::{OFFSETS, Y};

/// Few rows an expert.
pub(super) struct Thin;

/// Rows of an expert, on average, up to which it is raced.
const FEW: u64 = 128;

/// Experts that have rows when inputs are drawn.
fn busy(p: &GroupedProblem) -> u64 {
    p.counts().iter().filter(|count| **count > 0).count().max(1) as u64
}

/// Rows of a tile that a problem may want: as many as an expert with rows has on average, and the steps beside that.
fn heights(p: &GroupedProblem) -> Vec<i64> {
    let mean = (p.rows / busy(p)).next_power_of_two().clamp(8, 64) as i64;
    [mean, 2 * mean, mean / 2].into_iter().filter(|tall| (8..=128).contains(tall)).collect()
}

impl CudaKernelSpec<GroupedProblem> for Thin {
    fn id(&self) -> &'static str {
        "wgmma_thin"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &GroupedProblem, chip: &Chip) -> Fit {
        match no_tma(p, chip) {
            Some(why) => Fit::aside(why),
            None if p.rows > FEW * p.experts => Fit::aside(format!("made for up to {FEW} rows an expert")),
            None => Fit::HIGH,
        }
    }

    fn space(&self, p: &GroupedProblem, chip: &Chip) -> Space {
        let (p, chip) = (*p, chip.clone());
        // k is cut only where there are too few tiles to go round.
        let few = busy(&p) * p.n.div_ceil(128) < 2 * u64::from(chip.multiprocessors);
        Space::single()
            .axis(Axis::ints("BW", [128, 64]))
            .axis(Axis::ints("BT", heights(&p)))
            .axis(Axis::ints("BK", [64, 128]))
            .axis(Axis::ints("SPLIT", if few { vec![2, 1, 4] } else { vec![1] }))
            .axis(Axis::ints("CTAS", [2, 1]))
            .rule(Rule::on("two stages of each resident block fit", &["BW", "BT", "BK", "SPLIT", "CTAS"], move |c| {
                Thin.plan(&p, c, &chip).is_ok()
            }))
    }

    fn plan(&self, p: &GroupedProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let [bw, bt, bk] = [axis(c, "BW")?, axis(c, "BT")?, axis(c, "BK")?];
        let [split, ctas] = [axis(c, "SPLIT")?.max(1), axis(c, "CTAS")?.max(1)];
        if p.k.div_ceil(bk) < split {
            return Err(Rejection::DoesNotBuild { reason: format!("k has no {split} blocks of {bk}") });
        }
        let w = Operand::new(bw, bk, p.w == Layout::Row, 1)?;
        let x = Operand::new(bt, bk, false, 1)?;
        let turned = (bt * (bw * 2 + 16)).next_multiple_of(1024);
        let beside = turned + (split - 1) * bw * bt * 4 + 1024;
        // Static shared memory: where groups begin, and their tiles.
        let lists = 8 * (p.experts + 1);
        let stage = (w.bytes + x.bytes).next_multiple_of(1024);
        let deep = stages(chip, stage, beside + lists, ctas, 12)?;
        let shared = deep * stage + beside;
        let mut defines = facts(p);
        let axes = [("BW", bw), ("BT", bt), ("BK", bk), ("STAGES", deep), ("CONS", bw / 64), ("SPLIT", split)];
        defines.extend(axes.map(|(n, v)| (n, v as i64)));
        defines.extend([("CTAS", ctas as i64), ("SHARED", shared as i64)]);
        let mut arguments = vec![map_x(p, x.lines), map_w(p, w.lines)];
        arguments.extend([Argument::Pointer(OFFSETS), Argument::Pointer(Y)]);
        arguments.extend(sizes(p));
        let tiles = most_tiles(p, bt) * p.n.div_ceil(bw);
        let resident = (u64::from(chip.multiprocessors) * ctas / split).max(1);
        Ok(Plan {
            source: Source { entry: self.id(), text: include_str!("wgmma_thin.cu"), headers: &COPYING, defines },
            threads: (2 * bw + 32) as u32,
            shared,
            grid: Grid::Blocks(tiles.min(resident) * split),
            arguments,
            overlap: true,
        })
    }
}
