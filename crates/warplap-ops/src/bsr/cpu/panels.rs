//! Packed panels: B is copied once per launch into panels as wide as a register tile, then every block row sweeps them.
//!
//! Idea: a panel's rows lie one after the other, so its loads are aligned, never collide in the first cache and never
//! miss a page; halves are widened and a column-major B is turned while packing, once instead of once per block.
//! Panels are outermost, so that one stays in the second cache while all block rows pass. Wins: when each row of B
//! meets several blocks (density times block rows well above one). Limits: k·n numbers of scratch. Idea: Goto's packing.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::simd::{Element, Lanes, Task};
use warplap_cpu::{Cpu, Typed};

use super::matrix::{Matrix, Shared};
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
        SourceHash::of(&[own, tile, matrix, include_str!("setting.rs"), include_str!("scratch.rs")])
    }

    fn fit(&self, p: &BsrProblem, _: &Cpu) -> Fit {
        let uses = p.density() * p.rows() as f64;
        match p.b {
            Layout::Row if uses < 0.5 => Fit::aside("most of B would be packed for no block to meet it"),
            _ => Fit::HIGH,
        }
    }

    fn space(&self, p: &BsrProblem, cpu: &Cpu) -> Space {
        setting::space(p, cpu).axis(Axis::choices("sweep", &["panels", "rows"]))
    }

    fn needs(&self, p: &BsrProblem, config: &Config) -> Needs {
        let threads = config.size("threads").unwrap_or(1) as u64;
        Needs { threads, workspace: p.k * (p.n + 96) * 4, ..Needs::default() }
    }

    fn build(&self, p: &BsrProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Bsr, Cpu>>, Rejection> {
        let rows_first = config.get("sweep") == Some(&"rows".into());
        let workspace = p.k * (p.n + 96) * 4;
        Ok(Box::new(Packed { setting: Setting::read(config, cpu)?, rows_first, workspace }))
    }
}

struct Packed {
    setting: Setting,
    rows_first: bool,
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
    let (n, k, bs) = (p.n as usize, p.k as usize, p.bs as usize);
    let width = s.tile.columns(s.isa);
    let panels = n.div_ceil(width);
    let c = Shared::new(c);
    scratch::with(panels * k * width, |packed| {
        let to = Shared::new(packed);
        // One block's rows of all panels a task: B is read in order where it is row-major.
        s.pool.each(s.threads, p.columns(), |block| {
            s.isa.run(Pack { b: a.b, layout: p.b, k, n, width, rows: (block * bs, bs), to });
        });
        let b = &packed[..];
        // A few rows a task: a panel's last rows come free together.
        let chunk = p.rows().div_ceil(8 * s.threads).max(1);
        let chunks = p.rows().div_ceil(chunk);
        let (tasks, strip) = if kernel.rows_first { (chunks, panels) } else { (chunks * panels, 1) };
        s.pool.each(s.threads, tasks, |task| {
            let (panel, first) = (task / chunks, task % chunks * chunk);
            for row in first..(first + chunk).min(p.rows()) {
                widened(s.isa, a.values(a.row(row)), |values| {
                    s.isa.run(Strip {
                        tile: s.tile,
                        bs,
                        blocks: a.columns(a.row(row)),
                        values: values.as_ptr(),
                        b: b[panel * k * width..].as_ptr(),
                        b_block: bs * width,
                        b_row: width,
                        b_tile: k * width,
                        padded: true,
                        c: c.at(row * bs * n + panel * width),
                        ldc: n,
                        columns: (strip * width).min(n - panel * width),
                    });
                });
            }
        });
    });
    Ok(())
}

/// Copies some rows of B into all panels, widened, with zeros beyond the last column.
struct Pack<'a, T> {
    b: &'a [T],
    layout: Layout,
    k: usize,
    n: usize,
    width: usize,
    rows: (usize, usize),
    to: Shared<f32>,
}

impl<T: Element> Task for Pack<'_, T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let Pack { b, layout, k, n, width, rows: (first, rows), to } = self;
        for panel in 0..n.div_ceil(width) {
            let columns = width.min(n - panel * width);
            // SAFETY: `to` holds ceil(n / width) panels of k rows of `width` numbers, and this task alone writes rows
            // first..first + rows of each; b holds k·n elements.
            unsafe {
                let to = to.at((panel * k + first) * width);
                if layout == Layout::Row {
                    for r in 0..rows {
                        let from = b.as_ptr().add((first + r) * n + panel * width);
                        let to = to.add(r * width);
                        for at in (0..width).step_by(L::N) {
                            let left = columns.saturating_sub(at);
                            let v = if left >= L::N {
                                T::load::<L>(from.add(at))
                            } else {
                                T::load_first::<L>(from.wrapping_add(at), left)
                            };
                            L::store(to.add(at), v);
                        }
                    }
                } else {
                    for column in 0..width {
                        let from = b.as_ptr().wrapping_add((panel * width + column) * k + first);
                        for r in 0..rows {
                            *to.add(r * width + column) = if column < columns { (*from.add(r)).widen() } else { 0.0 };
                        }
                    }
                }
            }
        }
    }
}
