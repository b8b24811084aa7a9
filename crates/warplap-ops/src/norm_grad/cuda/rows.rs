//! Rows and sums over rows in registers, blocks that walk. Twin of `rows.cu`, which says how.
//!
//! Wins: everything. Limits: rows that registers hold.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, Source};

use super::plan::{HEADERS, arguments, columns, facts};
use crate::cuda::plan::{Argument, Beside, Grid, Plan, Twin, axis};
use crate::cuda::rows;
use crate::cuda::scratch::Need;
use crate::norm_grad::NormGradProblem;

/// Blocks that walk.
pub(super) struct Rows;

/// Warps of a block, and blocks that a multiprocessor holds.
const WARPS: [u64; 6] = [8, 4, 16, 2, 1, 32];
const RESIDENT: [u64; 4] = [2, 1, 4, 3];

/// Elements of a thread that registers hold, with two sums of each.
const MOST: u64 = 16;

/// The elements of the widest load.
fn widest(p: &NormGradProblem) -> u64 {
    rows::Rows { n: p.norm.n, dtype: p.norm.dtype, held: 1 }.widest()
}

/// Elements of a thread.
fn held(p: &NormGradProblem, warps: u64) -> u64 {
    p.norm.n.div_ceil(32 * warps * widest(p)) * widest(p)
}

/// Whether so many warps can, and none of them has nothing to do.
fn suits(p: &NormGradProblem, warps: u64) -> bool {
    let busy = warps == 1 || p.norm.n.div_ceil(widest(p)) > 16 * warps;
    // A block of 32 warps has 64 registers a thread.
    busy && held(p, warps) <= if warps == 32 { MOST / 2 } else { MOST }
}

/// Registers that a thread needs: a row twice as it came, two sums of each element, and what else there is.
fn fits(p: &NormGradProblem, warps: u64, resident: u64) -> bool {
    let row = held(p, warps) * p.norm.dtype.bytes() as u64 / 2;
    let needed = row + 2 * held(p, warps) + if p.norm.dropout() > 0.0 { 56 } else { 40 };
    needed * 32 * warps * resident <= 65536
}

/// Blocks of a setting.
fn blocks(p: &NormGradProblem, c: &Config, chip: &Chip) -> Result<u64, Rejection> {
    Ok(p.norm.rows.min(axis(c, "RESIDENT")? * u64::from(chip.multiprocessors)))
}

impl Twin<NormGradProblem> for Rows {
    fn id(&self) -> &'static str {
        "rows"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &NormGradProblem, chip: &Chip) -> Fit {
        match () {
            _ if chip.capability < (8, 0) => Fit::aside("needs a chip from sm_80 on"),
            _ if self.space(p, chip).default_config().is_none() => Fit::aside("registers do not hold a row"),
            _ => Fit::HIGH,
        }
    }

    fn space(&self, p: &NormGradProblem, _: &Chip) -> Space {
        let p = *p;
        let number = |c: &Config, name: &str| c.int(name).map_or(0, |v| v as u64);
        Space::single()
            .axis(Axis::ints("WARPS", WARPS.map(|w| w as i64)))
            .axis(Axis::ints("RESIDENT", RESIDENT.map(|r| r as i64)))
            .axis(Axis::ints("STREAM", [0, 1]))
            .rule(Rule::on("registers hold a row and its sums", &["WARPS", "RESIDENT"], move |c| {
                let (warps, resident) = (number(c, "WARPS"), number(c, "RESIDENT"));
                suits(&p, warps) && fits(&p, warps, resident)
            }))
    }

    fn plan(&self, p: &NormGradProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let (warps, resident, stream) = (axis(c, "WARPS")?, axis(c, "RESIDENT")?, axis(c, "STREAM")?);
        if !suits(p, warps) || !fits(p, warps, resident) || !WARPS.contains(&warps) || resident == 0 {
            let reason = format!("{warps} warps, {resident} blocks: not for rows of {}", p.norm.n);
            return Err(Rejection::DoesNotBuild { reason });
        }
        let mut defines = facts(p);
        let numbers =
            [("N", p.norm.n), ("WARPS", warps), ("VEC", widest(p)), ("STREAM", stream), ("RESIDENT", resident)];
        defines.extend(numbers.map(|(name, value)| (name, value as i64)));
        let blocks = blocks(p, c, chip)?;
        let scratch = Argument::Scratch(Need { words: blocks * 2 * p.norm.n, zeros: 0 });
        Ok(Plan {
            source: Source { entry: self.id(), text: include_str!("rows.cu"), headers: &HEADERS, defines },
            threads: 32 * warps as u32,
            shared: 0,
            grid: Grid::Blocks(blocks),
            arguments: arguments(p, scratch),
            overlap: false,
        })
    }

    fn beside(&self, p: &NormGradProblem, c: &Config, chip: &Chip) -> Result<Beside, Rejection> {
        let blocks = blocks(p, c, chip)?;
        let last = (p.norm.weight || p.norm.bias).then(|| columns(p, blocks)).into_iter().collect();
        Ok(Beside { first: Vec::new(), last })
    }
}
