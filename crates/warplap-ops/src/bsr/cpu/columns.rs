//! Column strips outermost: each thread packs its own strip of B and passes all block rows over it.
//!
//! Idea: a packed strip a tile or a few wide never leaves the second cache of the core that made it, so B is read from
//! afar once; A, read once per strip, comes in order and ahead of need. Half values are widened once for all strips.
//! Wins: wide B that meets each block column several times. Limits: n of at least a tile for each thread. Idea: the
//! outermost loops of Goto's product, shared out so that no core reads another's packing.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::simd::Element;
use warplap_cpu::{Cpu, Typed};

use super::matrix::{Matrix, Shared};
use super::pack::{Pack, met};
use super::scratch;
use super::setting::{self, Setting, widened};
use super::tile::{Strip, Widen};
use crate::bsr::{Bsr, BsrProblem};
use crate::gemm::Layout;
use crate::typed::for_dtype;

/// Columns a thread should have at least: below, strips are too few to share out.
const NARROW: u64 = 64;

/// Column strips outermost.
pub(super) struct Columns;

impl Variant<Bsr, Cpu> for Columns {
    fn id(&self) -> &str {
        "columns"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &BsrProblem, cpu: &Cpu) -> Fit {
        if let Some(why) = setting::no_plain(p) {
            return Fit::aside(why);
        }
        if p.n < NARROW * cpu.threads() as u64 {
            return Fit::aside(format!("n={} is too narrow for a strip a thread", p.n));
        }
        if p.b == Layout::Row && p.density() * (p.rows() as f64) < 1.0 {
            return Fit::aside("most of B would be packed for one block or none to meet it");
        }
        Fit::HIGH
    }

    fn space(&self, p: &BsrProblem, cpu: &Cpu) -> Space {
        setting::space(p, cpu, "4x6").axis(Axis::ints("across", [1, 2, 4]))
    }

    fn needs(&self, p: &BsrProblem, config: &Config) -> Needs {
        let threads = config.size("threads").unwrap_or(1) as u64;
        Needs { threads, workspace: workspace(p, config), ..Needs::default() }
    }

    fn build(&self, p: &BsrProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        setting::refuse(setting::no_plain(p))?;
        let (across, workspace) = (config.size("across").unwrap_or(1).max(1), workspace(p, config));
        Ok(Box::new(Strips { problem: *p, setting: Setting::read(config, cpu)?, across, workspace }))
    }
}

/// A strip of at most 96 columns times `across` a thread, and the widened values of half types.
fn workspace(p: &BsrProblem, config: &Config) -> u64 {
    let of = |axis| config.size(axis).unwrap_or(1) as u64;
    let values = if p.dtype == DType::F32 { 0 } else { p.values_len() as u64 };
    (of("threads") * of("across") * 96 * p.k + values) * 4
}

struct Strips {
    problem: BsrProblem,
    setting: Setting,
    across: usize,
    workspace: u64,
}

impl Kernel<Cpu> for Strips {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.dtype, T => product::<T>(self, args))
    }

    fn workspace(&self) -> u64 {
        self.workspace
    }
}

fn product<T: Element + Typed>(kernel: &Strips, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let (a, c) = Matrix::<T>::checked(&kernel.problem, args)?;
    let s = &kernel.setting;
    if T::DTYPE == DType::F32 {
        widened(s.isa, a.values(0..a.nnz()), |values| pass(kernel, &a, values, c));
        return Ok(());
    }
    let from = a.values(0..a.nnz());
    scratch::with(from.len(), |values| {
        let (to, part) = (Shared::new(values), from.len().div_ceil(8 * s.threads).max(1));
        s.pool.each(s.threads, from.len().div_ceil(part), |task| {
            let from = &from[task * part..from.len().min((task + 1) * part)];
            // SAFETY: `values` is as long as all of `from`; this task alone touches its part.
            let to = unsafe { std::slice::from_raw_parts_mut(to.at(task * part), from.len()) };
            s.isa.run(Widen { from, to });
        });
        pass(kernel, &a, values, c);
    });
    Ok(())
}

/// All strips, as threads come free.
fn pass<T: Element + Typed>(kernel: &Strips, a: &Matrix<'_, T>, values: &[f32], c: Shared<T>) {
    let (s, p) = (&kernel.setting, a.problem);
    let (n, k, bs) = (p.n as usize, p.k as usize, p.bs as usize);
    let width = s.tile.columns(s.isa);
    // As many whole tiles a strip as wanted, fewer where threads would go without.
    let tiles = n.div_ceil(width);
    let strip = kernel.across.min(tiles.div_ceil(s.threads)) * width;
    let met = met(a);
    s.pool.each(s.threads, n.div_ceil(strip), |task| {
        let columns = task * strip..n.min((task + 1) * strip);
        scratch::with(columns.len().div_ceil(width) * width * k, |packed| {
            let to = Shared::new(packed);
            for block in (0..p.columns()).filter(|block| met[*block]) {
                let rows = block * bs..(block + 1) * bs;
                s.isa.run(Pack { b: a.b, layout: p.b, k, n, width, columns: columns.clone(), rows, to });
            }
            for row in 0..p.rows() {
                s.isa.run(Strip {
                    tile: s.tile,
                    bs,
                    bc: bs,
                    blocks: a.columns(a.row(row)),
                    values: values[a.row(row).start * bs * bs..].as_ptr(),
                    b: packed.as_ptr(),
                    b_block: bs * width,
                    b_row: width,
                    b_tile: k * width,
                    padded: true,
                    c: c.at(row * bs * n + columns.start),
                    ldc: n,
                    columns: columns.len(),
                    finish: a.finish.from(row * bs * n + columns.start),
                });
            }
        });
    });
}
