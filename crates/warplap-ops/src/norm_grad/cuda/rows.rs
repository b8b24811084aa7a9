//! Rows and sums over rows in registers, blocks that walk. Twin of `rows.cu`, which says how.
//!
//! Wins: everything. Limits: rows that registers hold.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, Source};

use super::plan::{HEADERS, arguments, columns, facts};
use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Plan, PrePostLaunches, axis};
use crate::cuda::rows;
use crate::cuda::scratch::Need;
use crate::norm_grad::NormGradProblem;

/// Blocks that walk.
pub(super) struct Rows;

/// Warps of a row, rows of a block, and blocks that a multiprocessor holds.
const WARPS: [u64; 6] = [8, 4, 16, 2, 1, 32];
const TOGETHER: [u64; 4] = [4, 1, 2, 8];
const RESIDENT: [u64; 4] = [2, 1, 4, 3];

/// Elements of a thread that registers hold, with two sums of each.
const MOST: u64 = 16;

/// Warps of a block that has several rows, and elements of a row whose sums its shared memory takes.
const CROWD: u64 = 16;
const LINE: u64 = 8192;

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
    // A block of 32 warps has 64 registers a thread, and a warp by itself waits for nobody.
    let most = match warps {
        32 => MOST / 2,
        1 => 2 * MOST,
        _ => MOST,
    };
    busy && held(p, warps) <= most
}

/// A setting's numbers.
#[derive(Clone, Copy)]
struct Cut {
    warps: u64,
    together: u64,
    resident: u64,
}

impl Cut {
    /// The numbers of a config; zero where there is none.
    fn of(c: &Config) -> Self {
        let number = |name: &str| c.int(name).map_or(0, |v| v as u64);
        let (warps, together) = (number("WARPS"), number("TOGETHER"));
        Cut { warps, together, resident: number("RESIDENT") }
    }

    /// Threads of a block.
    fn threads(self) -> u64 {
        32 * self.warps * self.together
    }

    /// Whether rows of one block are few, and their sums fit into its shared memory.
    fn is_small(self, p: &NormGradProblem) -> bool {
        let crowd = self.warps * self.together <= CROWD && p.norm.n <= LINE && self.together < p.norm.rows;
        self.together == 1 || (self.together > 0 && crowd)
    }

    /// Whether registers hold it: a row twice as it came, sums of each element, and what else there is at the
    /// least. Who needs more spills, and is refused when it is built.
    fn fits(self, p: &NormGradProblem) -> bool {
        let row = held(p, self.warps) * p.norm.dtype.bytes() as u64 / 2;
        let sums = (u64::from(p.norm.weight) + u64::from(p.norm.bias)) * held(p, self.warps);
        let needed = row + sums + if p.norm.dropout() > 0.0 { 40 } else { 32 };
        let threads = self.threads() * self.resident;
        threads > 0 && threads <= 2048 && needed * threads <= 65536
    }
}

/// Blocks of a setting.
fn blocks(p: &NormGradProblem, c: &Config, chip: &Chip) -> Result<u64, Rejection> {
    let rows = p.norm.rows.div_ceil(axis(c, "TOGETHER")?);
    Ok(rows.min(axis(c, "RESIDENT")? * u64::from(chip.multiprocessors)))
}

impl CudaKernelSpec<NormGradProblem> for Rows {
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
        Space::single()
            .axis(Axis::ints("WARPS", WARPS.map(|w| w as i64)))
            .axis(Axis::ints("TOGETHER", TOGETHER.map(|t| t as i64)))
            .axis(Axis::ints("RESIDENT", RESIDENT.map(|r| r as i64)))
            .axis(Axis::ints("STREAM", [0, 1]))
            .rule(Rule::on("a thread's part of a row is small", &["WARPS"], move |c| suits(&p, Cut::of(c).warps)))
            .rule(Rule::on("a block of several rows is small", &["WARPS", "TOGETHER"], move |c| {
                Cut::of(c).is_small(&p)
            }))
            .rule(Rule::on("registers hold rows and their sums", &["WARPS", "TOGETHER", "RESIDENT"], move |c| {
                Cut::of(c).fits(&p)
            }))
    }

    fn plan(&self, p: &NormGradProblem, c: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let (cut, stream) = (Cut::of(c), axis(c, "STREAM")?);
        if !WARPS.contains(&cut.warps) || !suits(p, cut.warps) || !cut.is_small(p) || !cut.fits(p) {
            return Err(Rejection::DoesNotBuild { reason: format!("{c}: not for rows of {}", p.norm.n) });
        }
        let mut defines = facts(p);
        let numbers = [
            ("N", p.norm.n),
            ("WARPS", cut.warps),
            ("TOGETHER", cut.together),
            ("VEC", widest(p)),
            ("STREAM", stream),
            ("RESIDENT", cut.resident),
        ];
        defines.extend(numbers.map(|(name, value)| (name, value as i64)));
        let blocks = blocks(p, c, chip)?;
        let scratch = Argument::Scratch(Need { words: blocks * 2 * p.norm.n, zeros: 0 });
        Ok(Plan {
            source: Source { entry: self.id(), text: include_str!("rows.cu"), headers: &HEADERS, defines },
            threads: cut.threads() as u32,
            shared: 0,
            grid: Grid::Blocks(blocks),
            arguments: arguments(p, scratch),
            overlap: false,
        })
    }

    fn beside(&self, p: &NormGradProblem, c: &Config, chip: &Chip) -> Result<PrePostLaunches, Rejection> {
        let blocks = blocks(p, c, chip)?;
        let last = (p.norm.weight || p.norm.bias).then(|| columns(p, blocks)).into_iter().collect();
        Ok(PrePostLaunches { first: Vec::new(), last })
    }
}
