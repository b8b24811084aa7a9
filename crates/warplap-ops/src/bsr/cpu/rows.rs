//! Block rows with B in place: each thread takes a block row and sweeps a register tile over its columns.
//!
//! Idea: the sums of a tile stay in registers over all blocks of a row, so C is written once and nothing is copied
//! beforehand. Wins: sparse matrices that meet each row of B only a few times, and small products, where packing B
//! would cost more than it saves. Limits: B row-major; a long power-of-two row stride of B makes its lines collide in
//! the first cache. Idea from the outer-product kernels of BLIS, with A's blocks taken as they lie.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::simd::Element;
use warplap_cpu::{Cpu, Typed};

use super::matrix::Matrix;
use super::setting::{self, Setting, widened};
use super::tile::Strip;
use crate::bsr::{Bsr, BsrProblem};
use crate::typed::for_dtype;

/// Block rows with B in place.
pub(super) struct Rows;

impl Variant<Bsr, Cpu> for Rows {
    fn id(&self) -> &str {
        "rows"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &BsrProblem, _: &Cpu) -> Fit {
        setting::no_rows(p).or(setting::no_rows_of_b(p)).map_or(Fit::HIGH, Fit::aside)
    }

    fn space(&self, p: &BsrProblem, cpu: &Cpu) -> Space {
        setting::space(p, cpu, "4x6")
    }

    fn needs(&self, _: &BsrProblem, config: &Config) -> Needs {
        Needs { threads: config.size("threads").unwrap_or(1) as u64, ..Needs::default() }
    }

    fn build(&self, p: &BsrProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        setting::refuse(setting::no_rows(p).or(setting::no_rows_of_b(p)))?;
        Ok(Box::new(Swept { problem: *p, setting: Setting::read(config, cpu)? }))
    }
}

struct Swept {
    problem: BsrProblem,
    setting: Setting,
}

impl Kernel<Cpu> for Swept {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.dtype, T => product::<T>(self, args))
    }
}

fn product<T: Element + Typed>(kernel: &Swept, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let (s, p) = (&kernel.setting, &kernel.problem);
    let (a, c) = Matrix::<T>::checked(p, args)?;
    let (n, bs, bc) = (p.n as usize, p.bs as usize, p.bc as usize);
    // Whole tiles a task, and a few tasks a thread where there are not rows enough for that.
    let width = s.tile.columns(s.isa);
    let strips = (4 * s.threads).div_ceil(p.rows()).min(n.div_ceil(width));
    let strip = n.div_ceil(width).div_ceil(strips) * width;
    let strips = n.div_ceil(strip);
    s.pool.each(s.threads, p.rows() * strips, |task| {
        let (row, first) = (task / strips, task % strips * strip);
        widened(s.isa, a.values(a.row(row)), |values| {
            s.isa.run(Strip {
                tile: s.tile,
                bs,
                bc,
                blocks: a.columns(a.row(row)),
                values: values.as_ptr(),
                b: a.b[first..].as_ptr(),
                b_block: bc * n,
                b_row: n,
                b_tile: width,
                padded: false,
                c: c.at(row * bs * n + first),
                ldc: n,
                columns: strip.min(n - first),
                finish: a.finish.from(row * bs * n + first),
            });
        });
    });
    Ok(())
}
