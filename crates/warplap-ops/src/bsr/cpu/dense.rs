//! Fill in the zeros and call the library: A is written out dense, then the `gemm` crate multiplies.
//!
//! Idea: a dense product has no indices and blocks as it likes; above some density its better rate outweighs the work
//! on zeros. Wins: matrices that are nearly full, and a column-major C. Limits: m·k numbers of scratch; halves are
//! widened to f32 first (the crate would sum some of them in half precision).

use std::sync::Arc;

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::pool::Pool;
use warplap_cpu::simd::{Element, Isa, Lanes, Task};
use warplap_cpu::{Cpu, Typed};

use super::finish::Finish;
use super::matrix::{Matrix, Shared};
use super::scratch;
use super::setting::{self, widened};
use crate::bsr::{Bsr, BsrProblem};
use crate::faer::{self, Parallelism, Strided};
use crate::gemm::Layout;
use crate::typed::for_dtype;

/// Below this share of blocks the zeros cost more than any rate can win back.
const SPARSE: f64 = 0.4;

/// Fill in the zeros.
pub(super) struct Dense;

fn workspace(p: &BsrProblem) -> u64 {
    (p.m * p.k + p.k * p.n + p.m * p.n) * 4
}

impl Variant<Bsr, Cpu> for Dense {
    fn id(&self) -> &str {
        "dense"
    }

    fn source(&self) -> SourceHash {
        source!(faer::VERSION)
    }

    fn fit(&self, p: &BsrProblem, cpu: &Cpu) -> Fit {
        let density = p.density();
        if let Some(why) = setting::no_lanes(p) {
            return Fit::aside(why);
        }
        if workspace(p) > cpu.chip().memory / 4 {
            return Fit::aside(format!("{} bytes of scratch are too much of this machine's memory", workspace(p)));
        }
        if density < SPARSE && p.c == Layout::Row {
            return Fit::aside(format!("{density:.3} of the blocks are stored: zeros would be most of the work"));
        }
        if density > 0.75 { Fit::HIGH } else { Fit::MEDIUM }
    }

    fn space(&self, p: &BsrProblem, cpu: &Cpu) -> Space {
        Space::single().axis(setting::threads(p, cpu))
    }

    fn needs(&self, p: &BsrProblem, config: &Config) -> Needs {
        let threads = config.size("threads").unwrap_or(1) as u64;
        Needs { threads, workspace: workspace(p), ..Needs::default() }
    }

    fn build(&self, p: &BsrProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        setting::refuse(setting::no_lanes(p))?;
        let threads = config.size("threads").unwrap_or(1);
        Ok(Box::new(Filled { problem: *p, isa: cpu.isa(), threads, pool: cpu.pool().clone() }))
    }

    fn is_library(&self) -> bool {
        true
    }
}

struct Filled {
    problem: BsrProblem,
    isa: Isa,
    threads: usize,
    pool: Arc<Pool>,
}

impl Kernel<Cpu> for Filled {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.dtype, T => product::<T>(self, args))
    }

    fn workspace(&self) -> u64 {
        workspace(&self.problem)
    }
}

fn product<T: Element + Typed>(kernel: &Filled, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let (a, c) = Matrix::<T>::checked(&kernel.problem, args)?;
    let (m, k, n) = (a.problem.m as usize, a.problem.k as usize, a.problem.n as usize);
    scratch::with(m * k, |full| {
        fill(kernel, &a, full);
        widened(kernel.isa, &a.b[..k * n], |b| {
            if T::DTYPE == DType::F32 && !a.problem.is_scaled() {
                // SAFETY: T is f32: `Typed::DTYPE` names exactly one type; C holds m·n elements, and nothing of it is
                // added.
                let c = unsafe { std::slice::from_raw_parts_mut(c.at(0).cast::<f32>(), m * n) };
                multiply(kernel, a.problem, full, b, c);
            } else {
                scratch::with(m * n, |wide| {
                    multiply(kernel, a.problem, full, b, wide);
                    let wide = &wide[..];
                    kernel.pool.each(kernel.threads, m, |row| {
                        let finish = a.finish.from(row * n);
                        kernel.isa.run(Narrow { from: &wide[row * n..(row + 1) * n], to: c.at(row * n), finish });
                    });
                });
            }
        });
    });
    Ok(())
}

/// Writes A out dense, one block row a task.
fn fill<T: Element + Typed>(kernel: &Filled, a: &Matrix<'_, T>, full: &mut [f32]) {
    let (k, bs, bc) = (a.problem.k as usize, a.problem.bs as usize, a.problem.bc as usize);
    let full = Shared::new(full);
    kernel.pool.each(kernel.threads, a.problem.rows(), |row| {
        // SAFETY: `full` holds m·k numbers, and this task alone touches those of its block row.
        let full = unsafe { std::slice::from_raw_parts_mut(full.at(row * bs * k), bs * k) };
        full.fill(0.0);
        let blocks = a.row(row);
        for (column, block) in a.columns(blocks.clone()).iter().zip(a.values(blocks).chunks_exact(bs * bc)) {
            for (r, from) in block.chunks_exact(bc).enumerate() {
                // Columns may repeat in a matrix that nobody validated: they add up, as in every other variant.
                let to = &mut full[r * k + *column as usize * bc..][..bc];
                to.iter_mut().zip(from).for_each(|(to, from)| *to += from.widen());
            }
        }
    });
}

fn multiply(kernel: &Filled, p: &BsrProblem, a: &[f32], b: &[f32], c: &mut [f32]) {
    let (m, k, n) = (p.m as usize, p.k as usize, p.n as usize);
    let (b_col, b_row) = if p.b == Layout::Row { (1, n) } else { (k, 1) };
    let (c_col, c_row) = if p.c == Layout::Row { (1, n) } else { (m, 1) };
    let c = Shared::new(c);
    let threads = if kernel.threads > 1 { Parallelism::Rayon(kernel.threads) } else { Parallelism::None };
    let run = || {
        // SAFETY: a, b and c hold m·k, k·n and m·n numbers in the orders the strides say; c is ours alone.
        unsafe {
            faer::product(
                (m, n, k),
                Strided::rows(a.as_ptr(), k),
                Strided { first: b.as_ptr(), column: b_col, row: b_row },
                Strided { first: c.at(0), column: c_col, row: c_row },
                threads,
            );
        }
    };
    if kernel.threads > 1 { kernel.pool.install(run) } else { run() }
}

/// Finishes sums and rounds them to their stored type.
struct Narrow<'a, T> {
    from: &'a [f32],
    to: *mut T,
    finish: Finish<T>,
}

impl<T: Element> Task for Narrow<'_, T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let whole = self.from.len() / L::N * L::N;
        // SAFETY: `to` is valid for as many elements as `from` holds, and nobody else writes them.
        unsafe {
            for i in (0..whole).step_by(L::N) {
                let sum = L::load(self.from.as_ptr().add(i));
                T::store::<L>(self.to.add(i), self.finish.vector::<L>(sum, i, L::N));
            }
            for (i, x) in self.from.iter().enumerate().skip(whole) {
                *self.to.add(i) = T::narrow(self.finish.one(*x, i));
            }
        }
    }
}
