//! Split-K: the blocks of a cluster cut K and exchange their parts in shared memory. Twin of `wgmma_splitk.cu`.
//!
//! Wins: fewer tiles than multiprocessors; without a split, small products. Limits: f16/bf16, aligned, N a multiple of
//! 8.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, Source};

use crate::cuda::plan::{CudaKernelSpec, Grid, Operand, Plan, axis, panel, stages};
use crate::gemm::cuda::plan::{HEADERS, ONE_B, Side, epilogue, facts, map, no_tma, sizes, tiles};
use crate::gemm::{GemmProblem, Layout};

/// K cut between the blocks of a cluster.
pub(crate) struct Splitk;

impl CudaKernelSpec<GemmProblem> for Splitk {
    fn id(&self) -> &'static str {
        "wgmma_splitk"
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
        if p.m > 32 && tiles(p) <= 2 * u64::from(chip.multiprocessors) { Fit::HIGH } else { Fit::LOW }
    }

    fn space(&self, _: &GemmProblem, _: &Chip) -> Space {
        let of = |c: &Config, axis| c.int(axis).unwrap_or(0);
        Space::single()
            .axis(Axis::ints("BM", [128, 64]))
            .axis(Axis::ints("BN", [128, 64]))
            .axis(Axis::ints("BK", [64, 128]))
            .axis(Axis::ints("SPLIT", [1, 2]))
            .axis(Axis::ints("CM", [1, 2]))
            .axis(Axis::ints("CN", [1, 2]))
            .rule(Rule::on("a cluster cuts K or shares operands", &["SPLIT", "CM", "CN"], move |c| {
                of(c, "SPLIT") * of(c, "CM") * of(c, "CN") <= 2
            }))
            .rule(Rule::on("the largest tile takes BK = 64", &["BM", "BN", "BK"], move |c| {
                of(c, "BM") * of(c, "BN") < 16384 || of(c, "BK") == 64
            }))
            .rule(Rule::on("the smallest tile shares nothing", &["BM", "BN", "CM", "CN"], move |c| {
                of(c, "BM") * of(c, "BN") > 4096 || of(c, "CM") * of(c, "CN") == 1
            }))
    }

    fn plan(&self, p: &GemmProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let [bm, bn, bk, split] = [axis(c, "BM")?, axis(c, "BN")?, axis(c, "BK")?, axis(c, "SPLIT")?.max(1)];
        let [cm, cn] = [axis(c, "CM")?, axis(c, "CN")?];
        let cons = bm / 64;
        let a = Operand::new(bm, bk, p.a == Layout::Col, cn)?;
        let b = Operand::new(bn, bk, p.b == Layout::Row, cm)?;
        let columns = bn / split;
        let inbox = (split - 1) * bm * columns * 4 + 1024;
        let deep = stages(chip, a.bytes + b.bytes, inbox, 1, 8)?;
        let mut defines = facts(p);
        let axes = [("BM", bm), ("BN", bn), ("BK", bk), ("STAGES", deep), ("CONS", cons), ("SPLIT", split)];
        defines.extend(axes.map(|(n, v)| (n, v as i64)));
        defines.extend([("CM", cm as i64), ("CN", cn as i64), ("CTAS", 1)]);
        let mut arguments = vec![
            map(p, Side::A, [64, a.lines]),
            map(p, Side::B, [64, b.lines]),
            map(p, Side::C, [panel(columns) as u32, 64]),
        ];
        arguments.extend(sizes(p));
        arguments.extend(epilogue(p));
        // The stages are written over by the finished tile, which is never the larger: two stages always fit.
        let shared = (deep * (a.bytes + b.bytes)).max(bm * columns * 2) + inbox;
        defines.push(("SHARED", shared as i64));
        Ok(Plan {
            source: Source { entry: self.id(), text: include_str!("wgmma_splitk.cu"), headers: &HEADERS, defines },
            threads: 128 * cons as u32 + 32,
            shared,
            grid: Grid::Blocks(p.m.div_ceil(bm * cm) * p.n.div_ceil(bn * cn) * split * cm * cn * p.batch),
            arguments,
            overlap: true,
        })
    }
}
