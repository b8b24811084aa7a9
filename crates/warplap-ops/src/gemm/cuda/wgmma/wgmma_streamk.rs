//! Stream-K: the blocks of K of the last wave's tiles in equal shares for all. Twin of `wgmma_streamk.cu`, which says
//! how.
//!
//! Made for: tiles that leave much of a wave idle, K in the thousands; it has won nowhere yet. Limits: f16/bf16,
//! aligned, N a multiple of 8; a workspace.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, Source};

use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Operand, Plan, axis, panel, stages};
use crate::cuda::scratch::Need;
use crate::gemm::cuda::plan::{HEADERS, ONE_B, Side, epilogue, facts, map, no_tma, sizes};
use crate::gemm::{GemmProblem, Layout};

/// Equal shares of all the blocks of K.
pub(crate) struct Streamk;

/// Tiles worth trying: BM, BN, panels of C staged at once.
const TILES: [[i64; 3]; 2] = [[128, 256, 2], [128, 128, 2]];

/// Blocks of K of 64 that a share must have for its part to be worth sending.
const LEAST: u64 = 8;

/// The share of the multiprocessors' time that whole tiles would fill.
fn efficiency(p: &GemmProblem, [bm, bn]: [u64; 2], multiprocessors: u64) -> f64 {
    let tiles = p.m.div_ceil(bm) * p.n.div_ceil(bn) * p.batch;
    tiles as f64 / (tiles.div_ceil(multiprocessors) * multiprocessors).max(1) as f64
}

/// Blocks of K of one multiprocessor, were they dealt out evenly.
fn each(p: &GemmProblem, [bm, bn]: [u64; 2], multiprocessors: u64) -> u64 {
    p.m.div_ceil(bm) * p.n.div_ceil(bn) * p.batch * p.k.div_ceil(64) / multiprocessors.max(1)
}

impl CudaKernelSpec<GemmProblem> for Streamk {
    fn id(&self) -> &'static str {
        "wgmma_streamk"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &GemmProblem, chip: &Chip) -> Fit {
        if let Some(why) = no_tma(p, chip) {
            return Fit::aside(why);
        }
        if p.pair {
            return Fit::aside(ONE_B);
        }
        if !p.n.is_multiple_of(8) {
            return Fit::aside("its stores write whole 16 bytes: N must be a multiple of 8");
        }
        if p.k.div_ceil(64) * p.m.div_ceil(64) * p.n.div_ceil(64) > i32::MAX as u64 / 4 / p.batch {
            return Fit::aside("too many blocks of K to be counted in 31 bits");
        }
        let multiprocessors = u64::from(chip.multiprocessors);
        let pays = |tile| each(p, tile, multiprocessors) >= LEAST && efficiency(p, tile, multiprocessors) < 0.8;
        let many = p.m.div_ceil(128) * p.n.div_ceil(128) * p.batch >= 8 * multiprocessors;
        if p.m > 32 && !many && TILES.iter().any(|[bm, bn, _]| pays([*bm as u64, *bn as u64])) {
            Fit::HIGH
        } else {
            Fit::LOW
        }
    }

    fn space(&self, _: &GemmProblem, _: &Chip) -> Space {
        let column = |i: usize| TILES.iter().map(move |t| t[i]);
        Space::single()
            .axis(Axis::ints("BM", column(0)))
            .axis(Axis::ints("BN", column(1)))
            .axis(Axis::ints("SLOTS", column(2)))
            .axis(Axis::ints("CUT", [1, 2]))
            .axis(Axis::ints("CM", [1, 2]))
            .axis(Axis::ints("CN", [1, 2]))
            .rule(Rule::on("the tile is one worth trying", &["BM", "BN", "SLOTS"], |c| {
                TILES.contains(&["BM", "BN", "SLOTS"].map(|a| c.int(a).unwrap_or(0)))
            }))
            .rule(Rule::on("CM * CN <= 2", &["CM", "CN"], |c| c.int("CM") != Some(2) || c.int("CN") != Some(2)))
    }

    fn plan(&self, p: &GemmProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let [bm, bn, slots, cut] = [axis(c, "BM")?, axis(c, "BN")?, axis(c, "SLOTS")?, axis(c, "CUT")?];
        let [cm, cn, cons] = [axis(c, "CM")?, axis(c, "CN")?, 2];
        let a = Operand::new(bm, 64, p.a == Layout::Col, cn)?;
        let b = Operand::new(bn, 64, p.b == Layout::Row, cm)?;
        let wide = panel(bn);
        let fixed = cons * slots * 64 * wide * 2 + 1024;
        let deep = stages(chip, a.bytes + b.bytes, fixed, 1, 8)?;
        let shared = deep * (a.bytes + b.bytes) + fixed;
        // A flag for each warpgroup and a part for each block, on a line of their own.
        let blocks = u64::from(chip.multiprocessors);
        let flags = (blocks * cons).next_multiple_of(64);
        let mut defines = facts(p);
        let axes =
            [("BM", bm), ("BN", bn), ("BK", 64), ("STAGES", deep), ("CONS", cons), ("SLOTS", slots), ("CUT", cut)];
        defines.extend(axes.map(|(n, v)| (n, v as i64)));
        defines.extend([("CM", cm as i64), ("CN", cn as i64), ("GROUP", 8), ("LAG", 1), ("FLAGS", flags as i64)]);
        defines.push(("SHARED", shared as i64));
        let mut arguments =
            vec![map(p, Side::A, [64, a.lines]), map(p, Side::B, [64, b.lines]), map(p, Side::C, [wide as u32, 64])];
        arguments.push(Argument::Scratch(Need { words: flags + blocks * bm * bn, zeros: flags }));
        arguments.extend(sizes(p));
        arguments.extend(epilogue(p));
        let tiles = p.m.div_ceil(bm * cm) * p.n.div_ceil(bn * cn) * p.batch;
        Ok(Plan {
            source: Source { entry: self.id(), text: include_str!("wgmma_streamk.cu"), headers: &HEADERS, defines },
            threads: 128 * (cons as u32 + 1),
            shared,
            // Everybody takes part, and has a block of K at least.
            grid: Grid::Persistent { tiles: tiles * p.k.div_ceil(64), cluster: (cm * cn) as u32 },
            arguments,
            overlap: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warplap_core::op::Op;

    #[test]
    fn shares_are_cut_where_whole_tiles_leave_multiprocessors_idle() {
        let chip = Chip::h200();
        for (text, fit) in [
            ("gemm:m=2560,n=2560,k=2560,dtype=f16", Fit::HIGH),
            ("gemm:m=1536,n=1536,k=1536,dtype=bf16", Fit::HIGH),
            ("gemm:m=256,n=4096,k=4096,dtype=bf16", Fit::HIGH),
            ("gemm:m=64,n=11008,k=4096,dtype=f16", Fit::HIGH),
            ("gemm:m=4096,n=4096,k=64,dtype=f16", Fit::LOW),
            ("gemm:m=8192,n=8192,k=8192,dtype=f16", Fit::LOW),
            ("gemm:m=16,n=4096,k=4096,dtype=f16", Fit::LOW),
        ] {
            assert_eq!(Streamk.fit(&crate::gemm::Gemm::parse(text).unwrap(), &chip), fit, "{text}");
        }
    }

    /// The kernel's own arithmetic: every block of K of every tile is somebody's, once.
    #[test]
    fn the_runs_cover_every_block_of_the_tiles_that_are_cut_once_and_in_order() {
        for (tiles, blocks, runs) in [(200u64, 40u64, 132u64), (43, 64, 132), (1, 7, 132), (144, 24, 66), (5, 1, 132)] {
            let (whole, rest) = (tiles / runs, tiles % runs);
            let cut = if rest == 0 { 0 } else { rest + whole.min(1) * runs };
            let (even, longer) = (cut * blocks / runs, cut * blocks % runs);
            let begin = |run: u64| run * even + run.min(longer);
            assert_eq!((begin(0), begin(runs)), (0, cut * blocks));
            assert!((0..runs).all(|run| begin(run) <= begin(run + 1)));
            assert_eq!((tiles - cut) % runs, 0, "the others are whole waves");
        }
    }
}
