//! Few rows of A take the narrow side of the tensor-core product. Twin of `wgmma_few.cu`, which says how.
//!
//! Wins: M from 1 to 128, where reading B is all the work. Limits: Hopper; K a multiple of 16.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, Source};

use super::plan::{HEADERS, factor_bytes, factor_map, no_wgmma, rest, tensor_facts};
use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Operand, Plan, axis, stages};
use crate::qgemm::{QgemmProblem, Scale, slot};

/// Weights on the wide side, rows of A on the narrow one.
pub(super) struct WgmmaFew;

/// The rows of A one block takes: factors of blocks need as many registers again.
fn rows(p: &QgemmProblem) -> u64 {
    p.m.next_power_of_two().clamp(8, if p.scale == Scale::Block { 64 } else { 128 })
}

impl CudaKernelSpec<QgemmProblem> for WgmmaFew {
    fn id(&self) -> &'static str {
        "wgmma_few"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &QgemmProblem, chip: &Chip) -> Fit {
        match (no_wgmma(p, chip), p.m) {
            (Some(why), _) => Fit::aside(why),
            (_, ..=128) => Fit::HIGH,
            // Lines of C that no copy engine stores are left to this one.
            _ if !p.is_even() => Fit::MEDIUM,
            _ => Fit::aside("made for at most 128 rows"),
        }
    }

    fn space(&self, p: &QgemmProblem, chip: &Chip) -> Space {
        let (p, chip) = (*p, chip.clone());
        Space::single()
            .axis(Axis::ints("BW", [64, 128]))
            .axis(Axis::ints("SPLIT", [2, 1, 4]))
            .axis(Axis::ints("CTAS", [2, 1, 3, 4]))
            .rule(Rule::on("two stages of each resident block fit", &["BW", "SPLIT", "CTAS"], move |c| {
                WgmmaFew.plan(&p, c, &chip).is_ok()
            }))
    }

    fn plan(&self, p: &QgemmProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let [bw, split, ctas] = [axis(c, "BW")?.max(64), axis(c, "SPLIT")?.max(1), axis(c, "CTAS")?.max(1)];
        let bt = rows(p);
        // Registers: the sums, those that are being added to them (twice where they suffice), a block's factors, and
        // what belongs to the loop.
        let added = if bt <= 64 { bt } else { bt / 2 };
        let registers = bt / 2 + added + if p.scale == Scale::Block { bt / 2 } else { 0 } + 24;
        if registers * ctas * (2 * bw + 32) > 65536 {
            let reason = format!("{ctas} blocks of {registers} registers a thread do not fit");
            return Err(Rejection::OverLimits { reason });
        }
        let (few, weights) = (Operand::new(bt, 64, false, 1)?, Operand::new(bw, 64, false, 1)?);
        let stage = few.bytes + weights.bytes + factor_bytes(p, bt, 1);
        let inbox = (split - 1) * bw * bt * 4 + 1024;
        let deep = stages(chip, stage, inbox, ctas, 12)?;
        let shared = deep * stage + inbox;
        let mut defines = tensor_facts(p);
        let axes = [("BW", bw), ("BT", bt), ("STAGES", deep), ("CONS", bw / 64), ("SPLIT", split), ("CTAS", ctas)];
        defines.extend(axes.map(|(name, value)| (name, value as i64)));
        defines.push(("SHARED", shared as i64));
        let mut arguments =
            vec![factor_map(p, slot::A, few.lines), factor_map(p, slot::B, weights.lines), Argument::Pointer(slot::C)];
        arguments.extend(rest(p));
        Ok(Plan {
            source: Source { entry: self.id(), text: include_str!("wgmma_few.cu"), headers: &HEADERS, defines },
            threads: 2 * bw as u32 + 32,
            shared,
            grid: Grid::Blocks(p.m.div_ceil(bt) * p.n.div_ceil(bw) * split),
            arguments,
            overlap: true,
        })
    }
}
