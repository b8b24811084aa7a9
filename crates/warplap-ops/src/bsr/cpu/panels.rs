//! Packed panels: B is copied once per launch into panels as wide as a register tile, then block rows sweep them.
//!
//! Idea: a panel's rows lie one after the other, so its loads are aligned, never collide in the first cache and never
//! miss a page; halves are widened and a column-major B is turned while packing, once instead of once per block. A
//! thread takes a block row over all panels, so that its values stay in the second cache. Wins: when each row of B meets
//! several blocks (density times block rows well above one) and n is narrow; half types. Limits: k·n numbers of scratch.
//! Idea: Goto's packing.

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
use crate::bsr::{Bsr, BsrArgs, BsrProblem};
use crate::gemm::Layout;
use crate::typed::for_dtype;

/// Packed panels.
pub(super) struct Panels;

impl Variant<Bsr, Cpu> for Panels {
    fn id(&self) -> &str {
        "panels"
    }

    fn source(&self) -> SourceHash {
        let (own, tile, matrix) = (include_str!("panels.rs"), include_str!("tile.rs"), include_str!("matrix.rs"));
        let (pack, setting) = (include_str!("pack.rs"), include_str!("setting.rs"));
        SourceHash::of(&[own, tile, matrix, pack, setting, include_str!("scratch.rs"), include_str!("finish.rs")])
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
        Needs { threads, workspace: p.k * (p.n + 96) * 4, ..Needs::default() }
    }

    fn build(&self, p: &BsrProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Bsr, Cpu>>, Rejection> {
        let workspace = p.k * (p.n + 96) * 4;
        Ok(Box::new(Packed { setting: Setting::read(config, cpu)?, workspace }))
    }
}

struct Packed {
    setting: Setting,
    workspace: u64,
}

impl Kernel<Bsr, Cpu> for Packed {
    fn launch(&self, args: BsrArgs<'_, Cpu>, _: &()) -> Result<(), Rejection> {
        for_dtype!(args.problem.dtype, T => product::<T>(self, args))
    }

    fn workspace(&self) -> u64 {
        self.workspace
    }
}

fn product<T: Element + Typed>(kernel: &Packed, args: BsrArgs<'_, Cpu>) -> Result<(), Rejection> {
    let (a, c) = Matrix::<T>::checked(args)?;
    let (s, p) = (&kernel.setting, a.problem);
    s.plain(p)?;
    let (n, k, bs) = (p.n as usize, p.k as usize, p.bs as usize);
    let width = s.tile.columns(s.isa);
    let panels = n.div_ceil(width);
    let c = Shared::new(c);
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
