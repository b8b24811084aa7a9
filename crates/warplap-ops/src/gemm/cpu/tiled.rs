//! Tiled: plain loops cut to the caches, without packing and without a line of unsafe code.
//!
//! Idea: a block of B stays in the second cache while all rows of a block of C go over it, four steps of k at a time,
//! so that sums are loaded and stored a quarter as often. Wins: tiny products, where nothing can be gained by setting
//! anything up, and on machines whose vectors the other variants do not know. Limits: none. From: textbooks.

use std::sync::{Arc, Mutex};

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::roofline::Ceilings;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::pool::Pool;
use warplap_cpu::simd::{Element, Isa};
use warplap_cpu::{Cpu, Typed};

use super::kernel::epilogue::Epilogue;
use super::kernel::{buffers, epilogue, scratch};
use super::threads;
use crate::gemm::{Gemm, GemmProblem, Layout};
use crate::typed::for_dtype;

/// Plain loops cut to the caches.
pub(super) struct Tiled;

impl Variant<Gemm, Cpu> for Tiled {
    fn id(&self) -> &str {
        "tiled"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &GemmProblem, cpu: &Cpu) -> Fit {
        let tiny = p.m * p.n * p.k <= 16 * 16 * 16;
        if tiny || cpu.isa() == Isa::Portable { Fit::MEDIUM } else { Fit::LOW }
    }

    fn space(&self, p: &GemmProblem, cpu: &Cpu) -> Space {
        Space::single()
            .axis(Axis::ints("rows", [32, 128]))
            .axis(Axis::ints("depth", [128, 512]))
            .axis(threads::axis(p, cpu))
    }

    fn needs(&self, p: &GemmProblem, config: &Config) -> Needs {
        let (threads, rows) = (config.size("threads").unwrap_or(1) as u64, config.size("rows").unwrap_or(32) as u64);
        Needs { threads, workspace: 4 * threads * rows * p.n, ..Needs::default() }
    }

    fn floor(&self, p: &GemmProblem, config: &Config, ceilings: &Ceilings) -> Option<f64> {
        threads::floor(p, config, ceilings)
    }

    fn build(&self, p: &GemmProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        let refused = || Rejection::DoesNotBuild { reason: format!("no tiled kernel for '{config}'") };
        let size = |name| config.size(name).filter(|s| *s > 0).ok_or_else(refused);
        let (rows, depth, threads) = (size("rows")?, size("depth")?, size("threads")?);
        Ok(Box::new(Loops { problem: *p, rows, depth, threads, pool: cpu.pool().clone() }))
    }
}

struct Loops {
    problem: GemmProblem,
    rows: usize,
    depth: usize,
    threads: usize,
    pool: Arc<Pool>,
}

impl Kernel<Cpu> for Loops {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.dtype, T => launch::<T>(self, args))
    }
}

fn launch<T: Element + Typed>(kernel: &Loops, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let p = &kernel.problem;
    let (epilogue, (a, b, c)) = (epilogue::<T>(p, args)?, buffers::<T>(args)?);
    let (m, ldc) = (p.m as usize, p.ldc as usize);
    let rows = kernel.rows.min(m.div_ceil(kernel.threads)).max(1);
    let c = &mut c[..p.c_len()];
    if rows >= m {
        block(kernel, (0, m), (a, b), c, epilogue);
        return Ok(());
    }
    // One lock per block, taken once: the safe way to hand out disjoint parts.
    let parts: Vec<Mutex<&mut [T]>> = c.chunks_mut(rows * ldc).map(Mutex::new).collect();
    kernel.pool.each(kernel.threads, parts.len(), |i| {
        if let Ok(mut part) = parts[i].lock() {
            block(kernel, (i * rows, rows.min(m - i * rows)), (a, b), &mut part, epilogue);
        }
    });
    Ok(())
}

/// `rows` rows of C from `first` on.
fn block<T: Element>(
    kernel: &Loops,
    (first, rows): (usize, usize),
    (a, b): (&[T], &[T]),
    c: &mut [T],
    epilogue: Epilogue<'_, T>,
) {
    let p = &kernel.problem;
    let (n, k, lda, ldb, ldc) = (p.n as usize, p.k as usize, p.lda as usize, p.ldb as usize, p.ldc as usize);
    let x = |i: usize, q: usize| a[if p.a == Layout::Row { i * lda + q } else { q * lda + i }].widen();
    scratch::with(rows * n, |sums| {
        sums.fill(0.0);
        for start in (0..k).step_by(kernel.depth) {
            let end = (start + kernel.depth).min(k);
            for (i, sums) in sums.chunks_exact_mut(n).enumerate() {
                let x = |q| x(first + i, q);
                if p.b == Layout::Col {
                    for (j, sum) in sums.iter_mut().enumerate() {
                        let line = &b[j * ldb + start..j * ldb + end];
                        *sum += line.iter().enumerate().map(|(q, y)| x(start + q) * y.widen()).sum::<f32>();
                    }
                    continue;
                }
                let line = |q: usize| &b[q * ldb..][..n];
                let mut q = start;
                while q + 4 <= end {
                    let (x, y) =
                        ([x(q), x(q + 1), x(q + 2), x(q + 3)], [line(q), line(q + 1), line(q + 2), line(q + 3)]);
                    for (j, sum) in sums.iter_mut().enumerate() {
                        let low = x[0] * y[0][j].widen() + x[1] * y[1][j].widen();
                        *sum += low + (x[2] * y[2][j].widen() + x[3] * y[3][j].widen());
                    }
                    q += 4;
                }
                for q in q..end {
                    let x = x(q);
                    for (sum, y) in sums.iter_mut().zip(line(q)) {
                        *sum += x * y.widen();
                    }
                }
            }
        }
        epilogue.finish(Isa::best(), sums, first, n, n);
        for (i, sums) in sums.chunks_exact(n).enumerate() {
            for (to, sum) in c[i * ldc..].iter_mut().zip(sums) {
                *to = T::narrow(*sum);
            }
        }
    });
}
