//! Cooperative: warpgroups share one output tile of a persistent grid. Twin of `wgmma_coop.cu`, which says how.
//!
//! Wins: at least one wave of tiles and K in the hundreds or more. Limits: f16/bf16, aligned, N a multiple of 8.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, Source};

use super::plan::{HEADERS, Side, epilogue, facts, map, no_tma, sizes, tiles};
use crate::cuda::plan::{Grid, Operand, Plan, Twin, axis, panel, stages};
use crate::gemm::{GemmProblem, Layout};

/// Warpgroups cooperating on a tile.
pub(super) struct Coop;

/// Tiles that won somewhere on an H200: BM, BN, consumers, panels of C staged at once.
const LARGE: [[i64; 4]; 3] = [[128, 256, 2, 4], [128, 256, 2, 2], [128, 192, 2, 1]];
const MIDDLE: [[i64; 4]; 4] = [[128, 128, 2, 2], [192, 96, 3, 1], [192, 128, 3, 2], [128, 256, 2, 2]];

impl Twin<GemmProblem> for Coop {
    fn id(&self) -> &'static str {
        "wgmma_coop"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &GemmProblem, chip: &Chip) -> Fit {
        if let Some(why) = no_tma(p, chip) {
            return Fit::aside(why);
        }
        if !p.n.is_multiple_of(8) {
            return Fit::aside("its stores write whole 16 bytes: N must be a multiple of 8");
        }
        if 2 * tiles(p) >= u64::from(chip.multiprocessors) { Fit::HIGH } else { Fit::LOW }
    }

    fn space(&self, p: &GemmProblem, chip: &Chip) -> Space {
        let good: &'static [[i64; 4]] = if tiles(p) >= 4 * u64::from(chip.multiprocessors) { &LARGE } else { &MIDDLE };
        let column = |i: usize| good.iter().map(move |t| t[i]);
        Space::single()
            .axis(Axis::ints("BM", column(0)))
            .axis(Axis::ints("BN", column(1)))
            .axis(Axis::ints("CONS", column(2)))
            .axis(Axis::ints("SLOTS", column(3)))
            .axis(Axis::ints("CM", [1, 2]))
            .axis(Axis::ints("CN", [1, 2]))
            .axis(Axis::ints("GROUP", if good.len() == LARGE.len() { vec![8, 16] } else { vec![8] }))
            .rule(Rule::on("the tile is one that won somewhere", &["BM", "BN", "CONS", "SLOTS"], move |c| {
                let tile = ["BM", "BN", "CONS", "SLOTS"].map(|a| c.int(a).unwrap_or(0));
                good.contains(&tile)
            }))
            .rule(Rule::on("CM * CN <= 2", &["CM", "CN"], |c| c.int("CM") != Some(2) || c.int("CN") != Some(2)))
    }

    fn plan(&self, p: &GemmProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let [bm, bn, cons, slots] = [axis(c, "BM")?, axis(c, "BN")?, axis(c, "CONS")?, axis(c, "SLOTS")?];
        let [cm, cn, group] = [axis(c, "CM")?, axis(c, "CN")?, axis(c, "GROUP")?];
        let a = Operand::new(bm, 64, p.a == Layout::Col, cn)?;
        let b = Operand::new(bn, 64, p.b == Layout::Row, cm)?;
        let wide = panel(bn);
        let fixed = cons * slots * 64 * wide * 2 + 1024;
        let deep = stages(chip, a.bytes + b.bytes, fixed, 1, 8)?;
        let mut defines = facts(p);
        let axes = [("BM", bm), ("BN", bn), ("BK", 64), ("STAGES", deep), ("CONS", cons), ("SLOTS", slots)];
        defines.extend(axes.map(|(n, v)| (n, v as i64)));
        defines.extend([("CM", cm as i64), ("CN", cn as i64), ("GROUP", group as i64), ("LAG", 1)]);
        let mut arguments =
            vec![map(p, Side::A, [64, a.lines]), map(p, Side::B, [64, b.lines]), map(p, Side::C, [wide as u32, 64])];
        arguments.extend(sizes(p));
        arguments.extend(epilogue(p));
        let shared = deep * (a.bytes + b.bytes) + fixed;
        defines.push(("SHARED", shared as i64));
        Ok(Plan {
            source: Source { entry: self.id(), text: include_str!("wgmma_coop.cu"), headers: &HEADERS, defines },
            threads: 128 * (cons as u32 + 1),
            shared,
            grid: Grid::Persistent {
                tiles: p.m.div_ceil(bm * cm) * p.n.div_ceil(bn * cn) * p.batch,
                cluster: (cm * cn) as u32,
            },
            arguments,
            overlap: true,
        })
    }
}
