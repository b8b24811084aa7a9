//! Dots: vectors along n, four by four dot products at a time, one block row a task.
//!
//! Idea: the strip of G and those of B that a row meets are widened (and turned where they are column-major) once into
//! scratch, then every element of a block is a dot product of two contiguous lines; sixteen of them share eight loads a
//! step. Wins: everything but tiny problems. Limits: scratch of G and B in f32.

use std::sync::Arc;

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::pool::Pool;
use warplap_cpu::simd::{Element, Isa, Lanes, Task};
use warplap_cpu::{Cpu, Typed};

use super::call::{Call, square};
use crate::gemm::Layout;
use crate::sampled::{Sampled, SampledProblem};
use crate::typed::for_dtype;

/// Vectors along n.
pub(super) struct Dots;

fn workspace(p: &SampledProblem) -> u64 {
    (p.pattern.m + p.pattern.k) * p.pattern.n * 4
}

impl Variant<Sampled, Cpu> for Dots {
    fn id(&self) -> &str {
        "dots"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &SampledProblem, cpu: &Cpu) -> Fit {
        if workspace(p) > cpu.chip().memory / 4 {
            return Fit::aside("its scratch is too much of this machine's memory");
        }
        Fit::HIGH
    }

    fn space(&self, _: &SampledProblem, cpu: &Cpu) -> Space {
        let alone = (cpu.threads() > 1).then_some(1);
        Space::single().axis(Axis::ints("threads", [cpu.threads() as i64].into_iter().chain(alone)))
    }

    fn needs(&self, p: &SampledProblem, config: &Config) -> Needs {
        let threads = config.size("threads").unwrap_or(1) as u64;
        Needs { threads, workspace: workspace(p), ..Needs::default() }
    }

    fn build(&self, p: &SampledProblem, c: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        square(p)?;
        let threads = c.size("threads").unwrap_or(1);
        Ok(Box::new(Lines { problem: *p, isa: cpu.isa(), threads, pool: cpu.pool().clone() }))
    }
}

struct Lines {
    problem: SampledProblem,
    isa: Isa,
    threads: usize,
    pool: Arc<Pool>,
}

impl Kernel<Cpu> for Lines {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.pattern.dtype, T => product::<T>(self, args))
    }

    fn workspace(&self) -> u64 {
        workspace(&self.problem)
    }
}

/// The rows of a factor, contiguous and widened.
fn rows_of<T: Element>(from: &[T], layout: Layout, rows: usize, n: usize) -> Vec<f32> {
    match layout {
        Layout::Row => from[..rows * n].iter().map(|x| x.widen()).collect(),
        Layout::Col => {
            let mut to = vec![0f32; rows * n];
            // Lines of 16 rows at a time: a cache line of the source is used up before it leaves.
            for first in (0..rows).step_by(16) {
                for (q, line) in from.chunks_exact(rows).take(n).enumerate() {
                    for row in first..rows.min(first + 16) {
                        to[row * n + q] = line[row].widen();
                    }
                }
            }
            to
        }
    }
}

/// Memory that several threads write, each its own part.
#[derive(Clone, Copy)]
struct Out<T>(*mut T);
// SAFETY: each task writes the blocks of its own row.
unsafe impl<T: Send> Send for Out<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Out<T> {}

impl<T> Out<T> {
    fn at(self, element: usize) -> *mut T {
        self.0.wrapping_add(element)
    }
}

fn product<T: Element + Typed>(kernel: &Lines, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let Call { row_ptr, col_idx, g, b, values } = Call::<T>::checked(&kernel.problem, args)?;
    let (p, g_layout) = (&kernel.problem.pattern, kernel.problem.g);
    let (n, bs) = (p.n as usize, p.bs as usize);
    let (g, b) = (rows_of(g, g_layout, p.m as usize, n), rows_of(b, p.b, p.k as usize, n));
    let out = Out(values.as_mut_ptr());
    kernel.pool.each(kernel.threads, p.rows(), |row| {
        for block in row_ptr[row] as usize..row_ptr[row + 1] as usize {
            let (left, right) = (&g[row * bs * n..], &b[col_idx[block] as usize * bs * n..]);
            kernel.isa.run(Block { left, right, n, bs, to: out.at(block * bs * bs) });
        }
    });
    Ok(())
}

/// One block: `bs` lines of each factor, `n` numbers a line.
struct Block<'a, T> {
    left: &'a [f32],
    right: &'a [f32],
    n: usize,
    bs: usize,
    to: *mut T,
}

impl<T: Element> Task for Block<'_, T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let (n, bs) = (self.n, self.bs);
        let whole = n / L::N * L::N;
        for (r, c) in (0..bs).step_by(4).flat_map(|r| (0..bs).step_by(4).map(move |c| (r, c))) {
            // SAFETY: bs is a multiple of 4; both factors hold bs lines of n numbers, `to` bs·bs elements that this
            // task alone writes.
            unsafe {
                let (left, right) = (self.left.as_ptr().add(r * n), self.right.as_ptr().add(c * n));
                let mut sums = [[L::zero(); 4]; 4];
                for q in (0..whole).step_by(L::N) {
                    let y: [L::V; 4] = std::array::from_fn(|j| L::load(right.add(j * n + q)));
                    for (i, sums) in sums.iter_mut().enumerate() {
                        let x = L::load(left.add(i * n + q));
                        for (sum, y) in sums.iter_mut().zip(y) {
                            *sum = L::fma(x, y, *sum);
                        }
                    }
                }
                for (i, sums) in sums.iter().enumerate() {
                    for (j, sum) in sums.iter().enumerate() {
                        let term = |q| *left.add(i * n + q) * *right.add(j * n + q);
                        let rest: f32 = (whole..n).map(term).sum();
                        *self.to.add((r + i) * bs + c + j) = T::narrow(L::sum(*sum) + rest);
                    }
                }
            }
        }
    }
}
