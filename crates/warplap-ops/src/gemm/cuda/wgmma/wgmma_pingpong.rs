//! Ping-pong: two warpgroups take turns, one multiplies while the other writes out. Twin of `wgmma_pingpong.cu`.
//!
//! Wins: short K, many tiles. Limits: f16/bf16, aligned, N a multiple of 8; wants two tiles per multiprocessor.

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

/// Two warpgroups taking turns.
pub(crate) struct Pingpong;

impl CudaKernelSpec<GemmProblem> for Pingpong {
    fn id(&self) -> &'static str {
        "wgmma_pingpong"
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
        if tiles(p) > u64::from(chip.multiprocessors) { Fit::HIGH } else { Fit::LOW }
    }

    fn space(&self, p: &GemmProblem, _: &Chip) -> Space {
        let space = Space::single()
            .axis(Axis::ints("BM", [128, 64]))
            .axis(Axis::ints("BN", [128, 256]))
            .axis(Axis::ints("CM", [2, 1]))
            .axis(Axis::ints("CN", [1, 2]))
            .axis(Axis::ints("GROUP", [8, 16]))
            .rule(Rule::on("BM * BN = 16384", &["BM", "BN"], |c| {
                c.int("BM").zip(c.int("BN")).is_some_and(|(m, n)| m * n == 16384)
            }))
            .rule(Rule::on("CM * CN <= 2", &["CM", "CN"], |c| c.int("CM") != Some(2) || c.int("CN") != Some(2)));
        with_squares(p, space)
    }

    fn plan(&self, p: &GemmProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let [bm, bn, cm, cn] = [axis(c, "BM")?, axis(c, "BN")?, axis(c, "CM")?, axis(c, "CN")?];
        let group = axis(c, "GROUP")?;
        let a = Operand::new(bm, 64, p.a == Layout::Col, cn)?;
        let b = weights(p, bn, 64, cm)?;
        let out = columns(p, bn);
        let (wide, slots) = (panel(out), 2);
        let fixed = 2 * slots * 64 * wide * 2 + 1024;
        let deep = stages(chip, a.bytes + b.bytes, fixed, 1, 8)?;
        let mut defines = facts(p);
        let axes = [("BM", bm), ("BN", bn), ("BK", 64), ("STAGES", deep), ("SLOTS", slots), ("LAG", 1)];
        defines.extend(axes.map(|(n, v)| (n, v as i64)));
        defines.extend([("CM", cm as i64), ("CN", cn as i64), ("GROUP", group as i64)]);
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
            source: Source { entry: self.id(), text: include_str!("wgmma_pingpong.cu"), headers: &HEADERS, defines },
            threads: 384,
            shared,
            grid: Grid::Persistent {
                tiles: p.m.div_ceil(bm * cm) * p.n.div_ceil(out * cn) * p.batch,
                cluster: (cm * cn) as u32,
            },
            arguments,
            overlap: true,
        })
    }
}
