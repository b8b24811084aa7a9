//! Swap-AB: few rows of A take the narrow side of the tensor-core product. Twin of `wgmma_swapab.cu`.
//!
//! Wins: M from 1 to 64, where reading B is all the work; pairs of so few rows. Limits: f16/bf16, aligned, A row-major.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, Source};

use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Operand, Plan, axis, int, stages};
use crate::cuda::scratch::Need;
use crate::gemm::cuda::plan::{
    HEADERS, Side, columns, epilogue, facts, find_factors, map, no_tma, pointer, second, sizes, weights,
};
use crate::gemm::{GemmProblem, Layout};

/// Weights on the wide side, rows of A on the narrow one.
pub(crate) struct Swapab;

/// The share of resident blocks that have work in the last wave.
fn fill(p: &GemmProblem, [bw, split, ctas]: [u64; 3], multiprocessors: u64) -> f64 {
    let (blocks, slots) = (p.n.div_ceil(columns(p, bw)) * p.batch * split, multiprocessors * ctas);
    blocks as f64 / (blocks.div_ceil(slots) * slots).max(1) as f64
}

/// Clusters in front of the grid that find the factors of a norm: a warp a row, as long as these are few.
fn front(p: &GemmProblem, split: u64, warps: u64) -> u64 {
    p.rows().div_ceil(split * warps).clamp(1, 8)
}

impl CudaKernelSpec<GemmProblem> for Swapab {
    fn id(&self) -> &'static str {
        "wgmma_swapab"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &GemmProblem, chip: &Chip) -> Fit {
        match (no_tma(p, chip), p.m) {
            (Some(why), _) => Fit::aside(why),
            _ if p.a == Layout::Col => Fit::aside("A must be row-major"),
            (_, ..=64) => Fit::HIGH,
            _ if p.pair => Fit::aside("a pair of more than 64 rows takes more registers than there are"),
            (_, ..=128) => Fit::MEDIUM,
            _ => Fit::aside("made for at most 128 rows"),
        }
    }

    fn space(&self, p: &GemmProblem, chip: &Chip) -> Space {
        let (p, chip) = (*p, chip.clone());
        let of = |c: &Config, axis| c.int(axis).and_then(|v| u64::try_from(v).ok()).unwrap_or(1).max(1);
        // Where B does not stay in L2, wider lines are read from memory in better order, and idle multiprocessors cost.
        let streams = p.batch * p.k * p.n * if p.pair { 4 } else { 2 } > chip.l2;
        let multiprocessors = u64::from(chip.multiprocessors);
        // Blocks of a pair have wider stages: fewer of them keep the memory busy.
        let least = if p.pair { 0.4 } else { 0.6 };
        // A warpgroup multiplies 64 columns of either B of a pair.
        let widths = match (p.pair, streams) {
            (true, _) => vec![128],
            (false, true) => vec![64, 128],
            (false, false) => vec![64],
        };
        Space::single()
            .axis(Axis::ints("BW", widths))
            .axis(Axis::ints("BK", [128, 64]))
            .axis(Axis::ints("SPLIT", [2, 1, 4]))
            .axis(Axis::ints("CTAS", [2, 1, 3, 4]))
            .rule(Rule::on("blocks that stream fill the chip", &["BW", "SPLIT", "CTAS"], move |c| {
                !streams || fill(&p, [of(c, "BW"), of(c, "SPLIT"), of(c, "CTAS")], multiprocessors) >= least
            }))
            .rule(Rule::on("two stages of each resident block fit", &["BW", "BK", "SPLIT", "CTAS"], move |c| {
                Swapab.plan(&p, c, &chip).is_ok()
            }))
    }

    fn plan(&self, p: &GemmProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let [bk, split, ctas] = [axis(c, "BK")?, axis(c, "SPLIT")?.max(1), axis(c, "CTAS")?.max(1)];
        let bw = axis(c, "BW")?.max(64);
        let bt = p.m.next_power_of_two().clamp(8, 128);
        let rows = Operand::new(bt, bk, false, 1)?;
        let (weights, out) = (weights(p, bw, bk, 1)?, columns(p, bw));
        let groups = out / 64;
        let stage = rows.bytes + weights.bytes;
        let factors = if p.rms.is_some() { bt * 4 } else { 0 };
        let inbox = (split - 1) * bw * bt * 4 + factors + 1024;
        let deep = stages(chip, stage, inbox, ctas, 12)?;
        let turned = (bt * (out * 2 + 16)).next_multiple_of(1024);
        let mut defines = facts(p);
        defines.retain(|(name, _)| *name != "A_COL");
        let axes = [("BW", bw), ("BT", bt), ("BK", bk), ("STAGES", deep), ("CONS", groups), ("SPLIT", split)];
        defines.extend(axes.map(|(n, v)| (n, v as i64)));
        defines.extend([("SHARE", 1), ("CTAS", ctas as i64)]);
        let mut arguments =
            vec![map(p, Side::A, [64, rows.lines]), map(p, Side::B, [64, weights.lines]), pointer(Side::C)];
        arguments.extend(sizes(p));
        arguments.push(int(p.ldc));
        arguments.extend(epilogue(p));
        arguments.extend(second(p, [64, weights.lines]));
        find_factors(p, &mut defines, &mut arguments);
        let threads = 128 * groups + 32;
        let front = if p.rms.is_some() { front(p, split, threads / 32) } else { 0 };
        if front > 0 {
            defines.push(("FRONT", front as i64));
            let words = 2 * (1 + p.rows());
            let room = Need { words, zeros: words };
            arguments.extend([pointer(Side::A), Argument::Long(p.lda), Argument::Scratch(room)]);
        }
        let shared = (deep * stage).max(turned) + inbox;
        defines.push(("SHARED", shared as i64));
        Ok(Plan {
            source: Source { entry: self.id(), text: include_str!("wgmma_swapab.cu"), headers: &HEADERS, defines },
            threads: threads as u32,
            shared,
            grid: Grid::Blocks((p.m.div_ceil(bt) * p.n.div_ceil(out) * p.batch + front) * split),
            arguments,
            overlap: true,
        })
    }
}
