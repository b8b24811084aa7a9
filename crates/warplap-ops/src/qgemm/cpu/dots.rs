//! Dots: four by four dot products at a time, vectors along k.
//!
//! Idea: lines of both matrices lie along k, so nothing is packed; sixteen sums share eight loads. Wins: signed bytes
//! where there are no tiles, few rows, an odd k. Limits: signed bytes.

use std::sync::Arc;

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::Cpu;
use warplap_cpu::pool::Pool;
use warplap_cpu::simd::{Isa, Lanes, Task};

use super::call::Ints;
use super::threads::{self, THREADS};
use crate::gemm::cpu::kernel::Shared;
use crate::qgemm::{Qgemm, QgemmProblem};

/// Vectors along k.
pub(super) struct Dots;

/// Rows and columns of the sums that are kept at once.
const SIDE: usize = 4;

impl Variant<Qgemm, Cpu> for Dots {
    fn id(&self) -> &str {
        "dots"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &QgemmProblem, _: &Cpu) -> Fit {
        if p.is_int() { Fit::MEDIUM } else { Fit::aside("signed bytes only") }
    }

    fn space(&self, p: &QgemmProblem, cpu: &Cpu) -> Space {
        Space::single().axis(Axis::ints("columns", [64, 16, 256])).axis(threads::axis(p, cpu))
    }

    fn needs(&self, _: &QgemmProblem, config: &Config) -> Needs {
        Needs { threads: config.size(THREADS).unwrap_or(1) as u64, ..Needs::default() }
    }

    fn build(&self, p: &QgemmProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        if !p.is_int() {
            return Err(Rejection::DoesNotBuild { reason: "signed bytes only".into() });
        }
        let (columns, threads) = (config.size("columns").unwrap_or(64).max(SIDE), config.size(THREADS).unwrap_or(1));
        Ok(Box::new(Panels { problem: *p, columns, threads, isa: cpu.isa(), pool: cpu.pool().clone() }))
    }
}

struct Panels {
    problem: QgemmProblem,
    columns: usize,
    threads: usize,
    isa: Isa,
    pool: Arc<Pool>,
}

impl Kernel<Cpu> for Panels {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        let (p, Ints { a, b, c }) = (&self.problem, Ints::of(&self.problem, args)?);
        let (n, k, c) = (p.n as usize, p.k as usize, Shared(c.as_mut_ptr()));
        self.pool.each(self.threads, n.div_ceil(self.columns), |task| {
            let columns = task * self.columns..((task + 1) * self.columns).min(n);
            self.isa.run(Panel { a, b, c, n, k, m: p.m as usize, columns });
        });
        Ok(())
    }
}

/// The columns of C of one task.
struct Panel<'a> {
    a: &'a [i8],
    b: &'a [i8],
    c: Shared<i32>,
    m: usize,
    n: usize,
    k: usize,
    columns: std::ops::Range<usize>,
}

impl Task for Panel<'_> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let line = |of: &'_ [i8], at: usize| -> *const i8 { of[at * self.k..].as_ptr() };
        for row in (0..self.m).step_by(SIDE) {
            for column in self.columns.clone().step_by(SIDE) {
                let (rows, columns) = (SIDE.min(self.m - row), SIDE.min(self.columns.end - column));
                // At an edge the last line stands for those that are missing.
                let lines = |of, first: usize, count: usize| -> [&[i8]; SIDE] {
                    std::array::from_fn(|i| {
                        // SAFETY: a line of the matrix, which holds what the problem spans.
                        unsafe { std::slice::from_raw_parts(line(of, first + i.min(count - 1)), self.k) }
                    })
                };
                let sums = square(lines(self.a, row, rows), lines(self.b, column, columns), self.k);
                for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
                    // SAFETY: inside C; tasks have columns of their own.
                    unsafe { *self.c.add((row + i) * self.n + column + j) = sums[i][j] };
                }
            }
        }
    }
}

/// Sixteen dot products of lines of `k` bytes.
#[inline(always)]
fn square(a: [&[i8]; SIDE], b: [&[i8]; SIDE], k: usize) -> [[i32; SIDE]; SIDE] {
    let mut sums = [[0i32; SIDE]; SIDE];
    let (a, b) = (a.map(|line| &line[..k]), b.map(|line| &line[..k]));
    for (i, sums) in sums.iter_mut().enumerate() {
        for (j, sum) in sums.iter_mut().enumerate() {
            // Beyond i32 a sum wraps, as that of tensor cores does.
            *sum = a[i].iter().zip(b[j]).fold(0i32, |s, (x, y)| s.wrapping_add(i32::from(*x) * i32::from(*y)));
        }
    }
    sums
}
