//! Blocks that walk the rows, with the next one under way. Twin of `walk.cu`, which says how.
//!
//! Wins: dropout in front of many rows. Limits: rows that registers hold; more rows than blocks that run at once.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, Source};

use super::plan::{HEADERS, arguments, facts};
use crate::cuda::plan::{Grid, Plan, Twin, axis};
use crate::cuda::rows;
use crate::norm::NormProblem;

/// Blocks that walk.
pub(super) struct Walk;

/// Warps of a block, and how many blocks a multiprocessor holds.
const WARPS: [u64; 3] = [8, 4, 16];
const RESIDENT: [u64; 3] = [3, 2, 4];

/// Elements of a thread that registers hold beside those of its next row.
const MOST: u64 = 16;

/// The elements of the widest load.
fn widest(p: &NormProblem) -> u64 {
    rows::Rows { n: p.n, dtype: p.dtype, held: 1 }.widest()
}

/// Whether so many warps can: none of them is idle, and registers hold a row and the next.
fn suits(p: &NormProblem, warps: u64) -> bool {
    let vec = widest(p);
    let held = p.n.div_ceil(32 * warps * vec) * vec;
    held <= MOST && p.n.div_ceil(vec) > 16 * warps
}

impl Twin<NormProblem> for Walk {
    fn id(&self) -> &'static str {
        "walk"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &NormProblem, chip: &Chip) -> Fit {
        match () {
            _ if chip.capability < (8, 0) => Fit::aside("needs a chip from sm_80 on"),
            _ if p.dropout() == 0.0 => Fit::aside("made for dropout: without it memory alone decides"),
            _ if p.rows <= 2 * u64::from(chip.multiprocessors) => Fit::aside("made for more rows than run at once"),
            _ if !WARPS.iter().any(|warps| suits(p, *warps)) => Fit::aside("registers do not hold two rows"),
            _ => Fit::HIGH,
        }
    }

    fn space(&self, p: &NormProblem, _: &Chip) -> Space {
        let warps = WARPS.into_iter().filter(|warps| suits(p, *warps)).map(|w| w as i64);
        Space::single()
            .axis(Axis::ints("WARPS", warps))
            .axis(Axis::ints("RESIDENT", RESIDENT.map(|r| r as i64)))
            .axis(Axis::ints("STREAM", [0, 1]))
    }

    fn plan(&self, p: &NormProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let (warps, resident, stream) = (axis(c, "WARPS")?, axis(c, "RESIDENT")?, axis(c, "STREAM")?);
        if !suits(p, warps) || !WARPS.contains(&warps) || !RESIDENT.contains(&resident) {
            let reason = format!("{warps} warps, {resident} blocks: not for rows of {}", p.n);
            return Err(Rejection::DoesNotBuild { reason });
        }
        let mut defines = facts(p);
        let numbers = [("N", p.n), ("WARPS", warps), ("VEC", widest(p)), ("STREAM", stream), ("RESIDENT", resident)];
        defines.extend(numbers.map(|(name, value)| (name, value as i64)));
        Ok(Plan {
            source: Source { entry: self.id(), text: include_str!("walk.cu"), headers: &HEADERS, defines },
            threads: 32 * warps as u32,
            shared: 0,
            grid: Grid::Blocks(p.rows.min(resident * u64::from(chip.multiprocessors))),
            arguments: arguments(p),
            overlap: false,
        })
    }
}
