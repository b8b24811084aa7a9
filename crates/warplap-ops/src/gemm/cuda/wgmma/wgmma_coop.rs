//! Cooperative: warpgroups share one output tile of a persistent grid. Twin of `wgmma_coop.cu`, which says how.
//!
//! Wins: at least one wave of tiles and K in the hundreds or more; pairs. Limits: f16/bf16, aligned, N a multiple of 8.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, Source};

use crate::cuda::plan::{CudaKernelSpec, Grid, Operand, Plan, axis, panel, stages};
use crate::gemm::cuda::plan::{
    HEADERS, SQUARES, Side, columns, epilogue, facts, find_factors, map, no_tma, second, sizes, tiles, weights,
    with_squares,
};
use crate::gemm::{GemmProblem, Layout};

/// Warpgroups cooperating on a tile.
pub(crate) struct Coop;

/// Tiles that won somewhere on an H200: BM, BN, consumers, panels of C staged at once.
const LARGE: [[i64; 4]; 3] = [[128, 256, 2, 4], [128, 256, 2, 2], [128, 192, 2, 1]];
const MIDDLE: [[i64; 4]; 4] = [[128, 128, 2, 2], [192, 96, 3, 1], [192, 128, 3, 2], [128, 256, 2, 2]];

/// The same for pairs, which need no more panels than half as many columns make. 88 columns of C (176 of both B) cut
/// layers of language models into just less than a wave of tiles.
const LARGE_PAIRS: [[i64; 4]; 2] = [[128, 256, 2, 2], [256, 128, 2, 2]];
const MIDDLE_PAIRS: [[i64; 4]; 5] =
    [[256, 176, 2, 2], [128, 176, 2, 1], [128, 128, 2, 1], [128, 256, 2, 2], [128, 192, 2, 3]];

/// Whether a block has one tile, staged where the stages were: a pair's panel of an odd number of 16 bytes.
fn is_once(p: &GemmProblem, bn: u64) -> bool {
    p.pair && !columns(p, bn).is_multiple_of(16)
}

impl CudaKernelSpec<GemmProblem> for Coop {
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
        let large = tiles(p) >= 4 * u64::from(chip.multiprocessors);
        let good: &'static [[i64; 4]] = match (large, p.pair) {
            (true, false) => &LARGE,
            (false, false) => &MIDDLE,
            (true, true) => &LARGE_PAIRS,
            (false, true) => &MIDDLE_PAIRS,
        };
        let column = |i: usize| good.iter().map(move |t| t[i]);
        let p = *p;
        let space = Space::single()
            .axis(Axis::ints("BM", column(0)))
            .axis(Axis::ints("BN", column(1)))
            .axis(Axis::ints("CONS", column(2)))
            .axis(Axis::ints("SLOTS", column(3)))
            .axis(Axis::ints("CM", [1, 2]))
            .axis(Axis::ints("CN", [1, 2]))
            .axis(Axis::ints("GROUP", if large { vec![8, 16] } else { vec![8] }))
            .rule(Rule::on("the tile is one that won somewhere", &["BM", "BN", "CONS", "SLOTS"], move |c| {
                let tile = ["BM", "BN", "CONS", "SLOTS"].map(|a| c.int(a).unwrap_or(0));
                good.contains(&tile)
            }))
            .rule(Rule::on("CM * CN <= 2", &["CM", "CN"], |c| c.int("CM") != Some(2) || c.int("CN") != Some(2)));
        let space = with_squares(&p, space);
        if !p.pair {
            return space;
        }
        space.rule(Rule::on("B has such halves, and who has one tile is alone", &["BN", "CM", "CN"], move |c| {
            let of = |a| c.int(a).and_then(|v| u64::try_from(v).ok()).unwrap_or(1);
            let alone = of("CM") * of("CN") == 1;
            weights(&p, of("BN"), 64, of("CM")).is_ok() && (alone || !is_once(&p, of("BN")))
        }))
    }

    fn plan(&self, p: &GemmProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let [bm, bn, cons, slots] = [axis(c, "BM")?, axis(c, "BN")?, axis(c, "CONS")?, axis(c, "SLOTS")?];
        let [cm, cn, group] = [axis(c, "CM")?, axis(c, "CN")?, axis(c, "GROUP")?];
        let a = Operand::new(bm, 64, p.a == Layout::Col, cn)?;
        let b = weights(p, bn, 64, cm)?;
        let (out, once) = (columns(p, bn), is_once(p, bn));
        let wide = if once { out } else { panel(out) };
        let staged = if once { 0 } else { cons * slots * 64 * wide * 2 };
        let fixed = staged + 1024;
        let deep = stages(chip, a.bytes + b.bytes, fixed, 1, 8)?;
        let mut defines = facts(p);
        let axes = [("BM", bm), ("BN", bn), ("BK", 64), ("STAGES", deep), ("CONS", cons), ("SLOTS", slots)];
        defines.extend(axes.map(|(n, v)| (n, v as i64)));
        defines.extend([("CM", cm as i64), ("CN", cn as i64), ("GROUP", group as i64), ("LAG", 1)]);
        if once {
            defines.push(("ONCE", 1));
        }
        let mut arguments =
            vec![map(p, Side::A, [64, a.lines]), map(p, Side::B, [64, b.lines]), map(p, Side::C, [wide as u32, 64])];
        arguments.extend(sizes(p));
        arguments.extend(epilogue(p));
        arguments.extend(second(p, [64, b.lines]));
        if c.int(SQUARES) == Some(1) {
            find_factors(p, &mut defines, &mut arguments);
        }
        let shared = deep * (a.bytes + b.bytes) + fixed;
        defines.push(("SHARED", shared as i64));
        Ok(Plan {
            source: Source { entry: self.id(), text: include_str!("wgmma_coop.cu"), headers: &HEADERS, defines },
            threads: 128 * (cons as u32 + 1),
            shared,
            grid: match (p.m.div_ceil(bm * cm) * p.n.div_ceil(out * cn) * p.batch, once) {
                (tiles, true) => Grid::Blocks(tiles),
                (tiles, false) => Grid::Persistent { tiles, cluster: (cm * cn) as u32 },
            },
            arguments,
            overlap: true,
        })
    }
}
