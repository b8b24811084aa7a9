//! Column strips outermost with B in place: all block rows pass over one strip of B before the next is touched.
//!
//! Idea: a strip of B a few tiles wide stays in the second cache for the whole pass, and A, which is read once per
//! strip, comes in order. Wins: wide B that does not fit the second cache, met too seldom for packing to pay. Limits: B
//! row-major. Idea: the outermost loop of Goto's product, without its packing.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::simd::Element;
use warplap_cpu::{Cpu, Typed};

use super::matrix::{Matrix, Shared};
use super::setting::{self, Setting, widened};
use super::tile::Strip;
use crate::bsr::{Bsr, BsrArgs, BsrProblem};
use crate::gemm::Layout;
use crate::typed::for_dtype;

/// Columns below which the strips would be the rows of `rows`.
const NARROW: u64 = 128;

/// Column strips outermost.
pub(super) struct Columns;

impl Variant<Bsr, Cpu> for Columns {
    fn id(&self) -> &str {
        "columns"
    }

    fn source(&self) -> SourceHash {
        let (own, tile, matrix) = (include_str!("columns.rs"), include_str!("tile.rs"), include_str!("matrix.rs"));
        SourceHash::of(&[own, tile, matrix, include_str!("setting.rs")])
    }

    fn fit(&self, p: &BsrProblem, _: &Cpu) -> Fit {
        match p.b {
            Layout::Col => Fit::aside("vectors of B are read along its rows: b=row only"),
            Layout::Row if p.n < NARROW => Fit::aside("B is one strip: that is what the variant 'rows' does"),
            Layout::Row => Fit::HIGH,
        }
    }

    fn space(&self, p: &BsrProblem, cpu: &Cpu) -> Space {
        setting::space(p, cpu).axis(Axis::ints("across", [1, 2, 4]))
    }

    fn needs(&self, _: &BsrProblem, config: &Config) -> Needs {
        Needs { threads: config.size("threads").unwrap_or(1) as u64, ..Needs::default() }
    }

    fn build(&self, _: &BsrProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Bsr, Cpu>>, Rejection> {
        let across = config.size("across").unwrap_or(1).max(1);
        Ok(Box::new(Strips { setting: Setting::read(config, cpu)?, across }))
    }
}

struct Strips {
    setting: Setting,
    across: usize,
}

impl Kernel<Bsr, Cpu> for Strips {
    fn launch(&self, args: BsrArgs<'_, Cpu>, _: &()) -> Result<(), Rejection> {
        for_dtype!(args.problem.dtype, T => product::<T>(self, args))
    }
}

fn product<T: Element + Typed>(kernel: &Strips, args: BsrArgs<'_, Cpu>) -> Result<(), Rejection> {
    let (a, c) = Matrix::<T>::checked(args)?;
    let (s, p) = (&kernel.setting, a.problem);
    s.row_major(p)?;
    let (n, bs) = (p.n as usize, p.bs as usize);
    let width = s.tile.columns(s.isa);
    let strip = kernel.across * width;
    let chunk = p.rows().div_ceil(8 * s.threads).max(1);
    let chunks = p.rows().div_ceil(chunk);
    let c = Shared::new(c);
    s.pool.each(s.threads, chunks * n.div_ceil(strip), |task| {
        let (first, start) = (task / chunks * strip, task % chunks * chunk);
        for row in start..(start + chunk).min(p.rows()) {
            widened(s.isa, a.values(a.row(row)), |values| {
                s.isa.run(Strip {
                    tile: s.tile,
                    bs,
                    blocks: a.columns(a.row(row)),
                    values: values.as_ptr(),
                    b: a.b[first..].as_ptr(),
                    b_block: bs * n,
                    b_row: n,
                    b_tile: width,
                    padded: false,
                    c: c.at(row * bs * n + first),
                    ldc: n,
                    columns: strip.min(n - first),
                });
            });
        }
    });
    Ok(())
}
