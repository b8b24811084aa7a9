//! Turns: two warpgroups, each with tiles of its own, multiply by turns. Twin of `wgmma_turns.cu`, which says how.
//!
//! Wins: short K, and many experts of some tens of rows. Limits: f16/bf16, aligned, n and k multiples of 8 (k of 128
//! where w is row-major).

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, Source};

use super::plan::{COPYING, facts, map_w, map_x, map_y, most_tiles, no_tma, sizes};
use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Operand, Plan, axis, panel, stages};
use crate::gemm::Layout;
use crate::grouped::GroupedProblem;
use crate::grouped::slot::{OFFSETS, Y};

/// Warpgroups taking turns.
pub(super) struct Turns;

/// Tiles that won somewhere on an H200: BM, BN.
const TILES: [[i64; 2]; 3] = [[128, 128], [64, 256], [128, 160]];

/// Panels of y that a warpgroup stages at once.
const SLOTS: u64 = 2;

impl CudaKernelSpec<GroupedProblem> for Turns {
    fn id(&self) -> &'static str {
        "wgmma_turns"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &GroupedProblem, chip: &Chip) -> Fit {
        match no_tma(p, chip) {
            Some(why) => Fit::aside(why),
            None if p.rows >= 16 * p.experts => Fit::HIGH,
            None => Fit::LOW,
        }
    }

    fn space(&self, _: &GroupedProblem, _: &Chip) -> Space {
        let column = |i: usize| TILES.iter().map(move |t| t[i]);
        Space::single()
            .axis(Axis::ints("BM", column(0)))
            .axis(Axis::ints("BN", column(1)))
            .axis(Axis::ints("CM", [1, 2]))
            .axis(Axis::ints("CN", [2, 1]))
            .axis(Axis::ints("GROUP", [16]))
            .rule(Rule::on("the tile is one that won somewhere", &["BM", "BN"], |c| {
                TILES.contains(&["BM", "BN"].map(|a| c.int(a).unwrap_or(0)))
            }))
            .rule(Rule::on("CM * CN <= 2", &["CM", "CN"], |c| c.int("CM") != Some(2) || c.int("CN") != Some(2)))
    }

    fn plan(&self, p: &GroupedProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let [bm, bn, cm, cn, group] =
            [axis(c, "BM")?, axis(c, "BN")?, axis(c, "CM")?, axis(c, "CN")?, axis(c, "GROUP")?];
        let x = Operand::new(bm, 64, false, cn)?;
        let w = Operand::new(bn, 64, p.w == Layout::Row, cm)?;
        // Static shared memory: where groups begin, and their tiles.
        let lists = 8 * (p.experts + 1);
        let staged = 2 * SLOTS * 64 * panel(bn) * 2 + 1024;
        let deep = stages(chip, x.bytes + w.bytes, staged + lists, 1, 8)?;
        let shared = deep * (x.bytes + w.bytes) + staged;
        let mut defines = facts(p);
        let axes = [("BM", bm), ("BN", bn), ("STAGES", deep), ("SLOTS", SLOTS), ("CM", cm), ("CN", cn)];
        defines.extend(axes.map(|(n, v)| (n, v as i64)));
        defines.extend([("GROUP", group as i64), ("SHARED", shared as i64)]);
        let mut arguments = vec![map_x(p, x.lines), map_w(p, w.lines), map_y(p, panel(bn))];
        arguments.extend([Argument::Pointer(OFFSETS), Argument::Pointer(Y)]);
        arguments.extend(sizes(p));
        let tiles = most_tiles(p, bm * cm) * p.n.div_ceil(bn * cn);
        Ok(Plan {
            source: Source { entry: self.id(), text: include_str!("wgmma_turns.cu"), headers: &COPYING, defines },
            threads: 384,
            shared,
            grid: Grid::Persistent { tiles, cluster: (cm * cn) as u32 },
            arguments,
            overlap: true,
        })
    }
}
