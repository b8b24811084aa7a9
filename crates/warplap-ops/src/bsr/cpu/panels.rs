//! Packed panels: B is copied once per launch into panels as wide as a register tile, then block rows sweep them.
//!
//! Idea: a panel's rows lie one after the other, so its loads are aligned, never collide in the first cache and never
//! miss a page; halves are widened and a column-major B is turned while packing, once instead of once per block. A
//! thread takes a block row over all panels, so that its values stay in the second cache. Wins: when each row of B
//! meets several blocks (density times block rows well above one) and n is narrow; half types. Limits: k·n numbers of
//! scratch. Idea: Goto's packing.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::simd::Element;
use warplap_cpu::{Cpu, Typed};

use super::matrix::{Matrix, Shared};
use super::pack::{Pack, met};
use super::scratch;
use super::setting::{self, Setting, widened};
use super::tile::Strip;
use crate::bsr::{Bsr, BsrProblem};
use crate::gemm::Layout;
use crate::typed::for_dtype;

/// Packed panels.
pub(super) struct Panels;

impl Variant<Bsr, Cpu> for Panels {
    fn id(&self) -> &str {
        "panels"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &BsrProblem, _: &Cpu) -> Fit {
        let uses = p.density() * p.rows() as f64;
        if let Some(why) = setting::no_plain(p) {
            return Fit::aside(why);
        }
        match p.b {
            Layout::Row if uses < 0.5 => Fit::aside("most of B would be packed for no block to meet it"),
            _ => Fit::HIGH,
        }
    }

    fn space(&self, p: &BsrProblem, cpu: &Cpu) -> Space {
        setting::space(p, cpu, "8x2")
    }

    fn needs(&self, p: &BsrProblem, config: &Config) -> Needs {
        let threads = config.size("threads").unwrap_or(1) as u64;
        Needs { threads, workspace: workspace(p), ..Needs::default() }
    }

    fn build(&self, p: &BsrProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        setting::refuse(setting::no_plain(p))?;
        Ok(Box::new(Packed { problem: *p, setting: Setting::read(config, cpu)? }))
    }
}

fn workspace(p: &BsrProblem) -> u64 {
    p.k * (p.n + 96) * 4
}

struct Packed {
    problem: BsrProblem,
    setting: Setting,
}

impl Kernel<Cpu> for Packed {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.dtype, T => product::<T>(self, args))
    }

    fn workspace(&self) -> u64 {
        workspace(&self.problem)
    }
}

fn product<T: Element + Typed>(kernel: &Packed, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let (s, p) = (&kernel.setting, &kernel.problem);
    let (a, c) = Matrix::<T>::checked(p, args)?;
    let (n, k, bs) = (p.n as usize, p.k as usize, p.bs as usize);
    let width = s.tile.columns(s.isa);
    let panels = n.div_ceil(width);
    let met = met(&a);
    scratch::with(panels * k * width, |packed| {
        let to = Shared::new(packed);
        // One block's rows of all panels a task: B is read in order where it is row-major.
        s.pool.each(s.threads, p.columns(), |block| {
            if met[block] {
                s.isa.run(Pack {
                    b: a.b,
                    layout: p.b,
                    k,
                    n,
                    width,
                    columns: 0..n,
                    rows: block * bs..(block + 1) * bs,
                    to,
                });
            }
        });
        let b = &packed[..];
        s.pool.each(s.threads, p.rows(), |row| {
            widened(s.isa, a.values(a.row(row)), |values| {
                s.isa.run(Strip {
                    tile: s.tile,
                    bs,
                    bc: bs,
                    blocks: a.columns(a.row(row)),
                    values: values.as_ptr(),
                    b: b.as_ptr(),
                    b_block: bs * width,
                    b_row: width,
                    b_tile: k * width,
                    padded: true,
                    c: c.at(row * bs * n),
                    ldc: n,
                    columns: n,
                    finish: a.finish.from(row * bs * n),
                });
            });
        });
    });
    Ok(())
}
