//! A few columns: each row of a block is a dot product with each column of B.
//!
//! Idea: with up to eight columns a vector along C's row would be half empty, so vectors run along the block's own
//! rows: A is read once and in order, as wide as memory gives it, halves widened on the way; B, turned so that its
//! columns are contiguous, stays in the first cache. Sums over the lanes are made once per block row. Work is shared
//! out by blocks, not rows. Wins: n from 1 to 8. Limits: n above 8. Idea: the matrix-vector kernels of every BLAS.

use std::sync::Arc;

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::pool::Pool;
use warplap_cpu::simd::{Element, Isa, Lanes, Task};
use warplap_cpu::{Cpu, Typed};

use super::matrix::{Matrix, Shared};
use super::scratch;
use super::setting::{self, widened};
use crate::bsr::{Bsr, BsrProblem};
use crate::gemm::Layout;
use crate::typed::for_dtype;

/// The most columns it takes.
const MOST: u64 = 8;

/// A few columns.
pub(super) struct Thin;

impl Variant<Bsr, Cpu> for Thin {
    fn id(&self) -> &str {
        "thin"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &BsrProblem, _: &Cpu) -> Fit {
        match setting::no_plain(p) {
            Some(why) => Fit::aside(why),
            None if p.n > MOST => Fit::aside(format!("n={} is more than {MOST} columns", p.n)),
            None => Fit::HIGH,
        }
    }

    fn space(&self, p: &BsrProblem, cpu: &Cpu) -> Space {
        Space::single().axis(setting::isas()).axis(setting::threads(p, cpu))
    }

    fn needs(&self, p: &BsrProblem, config: &Config) -> Needs {
        let threads = config.size("threads").unwrap_or(1) as u64;
        Needs { threads, workspace: p.k * p.n * 4, ..Needs::default() }
    }

    fn build(&self, p: &BsrProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        setting::refuse(setting::no_plain(p))?;
        if p.n > MOST {
            return Err(Rejection::DoesNotBuild { reason: format!("n={} is more than {MOST} columns", p.n) });
        }
        let threads = config.size("threads").unwrap_or(1);
        let isa = setting::isa(config).unwrap_or(cpu.isa());
        Ok(Box::new(Dots { problem: *p, isa, threads, pool: cpu.pool().clone() }))
    }
}

struct Dots {
    problem: BsrProblem,
    isa: Isa,
    threads: usize,
    pool: Arc<Pool>,
}

impl Kernel<Cpu> for Dots {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.dtype, T => product::<T>(self, args))
    }
}

fn product<T: Element + Typed>(kernel: &Dots, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let (a, c) = Matrix::<T>::checked(&kernel.problem, args)?;
    let (n, k) = (a.problem.n as usize, a.problem.k as usize);
    if a.problem.b == Layout::Col || n == 1 {
        widened(kernel.isa, &a.b[..k * n], |b| share(kernel, &a, b, c));
    } else {
        scratch::with(k * n, |turned| {
            for (p, line) in a.b.chunks_exact(n).take(k).enumerate() {
                for (j, x) in line.iter().enumerate() {
                    turned[j * k + p] = x.widen();
                }
            }
            share(kernel, &a, turned, c);
        });
    }
    Ok(())
}

/// Shares the block rows out so that each task has about as many blocks.
fn share<T: Element + Typed>(kernel: &Dots, a: &Matrix<'_, T>, b: &[f32], c: Shared<T>) {
    let (rows, nnz) = (a.problem.rows(), a.nnz());
    let tasks = if kernel.threads == 1 { 1 } else { (4 * kernel.threads).min(rows) };
    // Each stored block and each row count as work, so that rows without blocks are shared out as well.
    let weight = |row: usize| if row == rows { nnz + rows } else { a.row(row).start + row };
    let border = |task: usize| {
        let wanted = task * (nnz + rows) / tasks;
        let (mut low, mut high) = (0, rows);
        while low < high {
            let middle = (low + high) / 2;
            if weight(middle) < wanted { low = middle + 1 } else { high = middle }
        }
        low
    };
    kernel.pool.each(kernel.threads, tasks, |task| {
        let last = if task + 1 == tasks { rows } else { border(task + 1) };
        kernel.isa.run(Lines { a, b, c, first: border(task), last });
    });
}

/// Block rows `first..last` times all columns.
struct Lines<'a, 'm, T> {
    a: &'a Matrix<'m, T>,
    b: &'a [f32],
    c: Shared<T>,
    first: usize,
    last: usize,
}

impl<T: Element + Typed> Task for Lines<'_, '_, T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        // Rows a step times columns are the sums held in registers: about half of what there is.
        let wide = const { L::REGISTERS >= 32 };
        // SAFETY: `product` made b of k·n numbers, and this task alone writes the rows first..last of C.
        unsafe {
            match self.a.problem.n {
                1 => self.rows::<L, 8, 1>(),
                2 if wide => self.rows::<L, 8, 2>(),
                2 => self.rows::<L, 4, 2>(),
                3 if wide => self.rows::<L, 4, 3>(),
                3 => self.rows::<L, 2, 3>(),
                4 if wide => self.rows::<L, 4, 4>(),
                4 => self.rows::<L, 2, 4>(),
                5 if wide => self.rows::<L, 4, 5>(),
                5 => self.rows::<L, 2, 5>(),
                6 if wide => self.rows::<L, 4, 6>(),
                6 => self.rows::<L, 2, 6>(),
                7 => self.rows::<L, 2, 7>(),
                _ => self.rows::<L, 2, 8>(),
            }
        }
    }
}

impl<T: Element + Typed> Lines<'_, '_, T> {
    #[inline(always)]
    unsafe fn rows<L: Lanes, const R: usize, const N: usize>(&self) {
        let (bs, k) = (self.a.problem.bs as usize, self.a.problem.k as usize);
        let whole = bs / L::N * L::N;
        for row in self.first..self.last {
            let blocks = self.a.row(row);
            let columns = self.a.columns(blocks.clone());
            let values = self.a.values(blocks).as_ptr();
            for r in (0..bs).step_by(R) {
                // SAFETY: R divides bs (a multiple of 8), every column index is below k / bs (`Matrix::checked`), and
                // b holds N columns of k numbers.
                unsafe {
                    let mut sums = [[L::zero(); N]; R];
                    let mut values = values.add(r * bs);
                    for column in columns {
                        let b = self.b.as_ptr().add(*column as usize * bs);
                        for q in (0..whole).step_by(L::N) {
                            let line: [L::V; N] = std::array::from_fn(|j| L::load(b.add(j * k + q)));
                            for (i, sums) in sums.iter_mut().enumerate() {
                                let x = T::load::<L>(values.add(i * bs + q));
                                for (sum, y) in sums.iter_mut().zip(line) {
                                    *sum = L::fma(x, y, *sum);
                                }
                            }
                        }
                        if whole < bs {
                            let left = bs - whole;
                            let line: [L::V; N] = std::array::from_fn(|j| L::load_first(b.add(j * k + whole), left));
                            for (i, sums) in sums.iter_mut().enumerate() {
                                let x = T::load_first::<L>(values.add(i * bs + whole), left);
                                for (sum, y) in sums.iter_mut().zip(line) {
                                    *sum = L::fma(x, y, *sum);
                                }
                            }
                        }
                        values = values.add(bs * bs);
                    }
                    for (i, sums) in sums.iter().enumerate() {
                        for (j, sum) in sums.iter().enumerate() {
                            let at = (row * bs + r + i) * N + j;
                            *self.c.at(at) = T::narrow(self.a.finish.one(L::sum(*sum), at));
                        }
                    }
                }
            }
        }
    }
}
