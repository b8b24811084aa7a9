//! Widened: f8e4m3 as the f32 numbers they stand for, then a product of f32.
//!
//! Idea: one pass over each matrix with its factors, of any kind; everything else is the blocked loops of dense f32.
//! Wins: f8e4m3 with factors of blocks, and where there are no tiles. Limits: f8e4m3; scratch memory of four times the
//! matrices, and of C.

use std::sync::Arc;

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::pool::Pool;
use warplap_cpu::simd::{Element, Isa};
use warplap_cpu::{Cpu, Typed};

use super::call::{Floats, values};
use super::threads::{self, THREADS};
use crate::gemm::Layout;
use crate::gemm::cpu::kernel::blocked::{self, Blocking, Product};
use crate::gemm::cpu::kernel::epilogue::Epilogue;
use crate::gemm::cpu::kernel::{Operand, Shared, scratch};
use crate::qgemm::{BLOCK, Qgemm, QgemmProblem};
use crate::typed::for_dtype;

/// Numbers of f32.
pub(super) struct Widened;

impl Variant<Qgemm, Cpu> for Widened {
    fn id(&self) -> &str {
        "widened"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &QgemmProblem, _: &Cpu) -> Fit {
        if p.is_int() { Fit::aside("f8e4m3 only") } else { Fit::HIGH }
    }

    fn space(&self, p: &QgemmProblem, cpu: &Cpu) -> Space {
        Space::single().axis(threads::axis(p, cpu))
    }

    fn needs(&self, p: &QgemmProblem, config: &Config) -> Needs {
        let workspace = 4 * (p.m * p.k + p.k * p.n + p.m * p.n);
        Needs { threads: config.size(THREADS).unwrap_or(1) as u64, workspace, ..Needs::default() }
    }

    fn build(&self, p: &QgemmProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        if p.is_int() {
            return Err(Rejection::DoesNotBuild { reason: "f8e4m3 only".into() });
        }
        let threads = config.size(THREADS).unwrap_or(1).max(1);
        Ok(Box::new(Wide { problem: *p, threads, pool: cpu.pool().clone() }))
    }
}

struct Wide {
    problem: QgemmProblem,
    threads: usize,
    pool: Arc<Pool>,
}

impl Kernel<Cpu> for Wide {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.out, T => self.product::<T>(args))
    }
}

impl Wide {
    fn product<T: Element + Typed>(&self, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
        let Floats { a, b, c, factors } = Floats::<T>::of(&self.problem, args)?;
        let p = &self.problem;
        let (m, n, k, block, values) = (p.m as usize, p.n as usize, p.k as usize, BLOCK as usize, values());
        scratch::with(m * k + k * n + m * n, |room| {
            let (wide, sums) = room.split_at_mut(m * k + k * n);
            let (wide_at, out) = (Shared(wide.as_mut_ptr()), Shared(c.as_mut_ptr()));
            self.pool.each(self.threads, m + n, |line| {
                let codes = if line < m { &a[line * k..][..k] } else { &b[(line - m) * k..][..k] };
                for (at, code) in codes.iter().enumerate() {
                    let factor = match line.checked_sub(m) {
                        None => factors.of_a(line, at / block),
                        Some(column) => factors.of_b(column, at / block),
                    };
                    // SAFETY: tasks write lines of their own in the scratch memory.
                    unsafe { *wide_at.add(line * k + at) = values[usize::from(code.0)] * factor };
                }
            });
            let operand = |at: usize, layout| Operand { at: wide[at..].as_ptr(), ld: k, layout };
            let (left, right) = (operand(0, Layout::Row), operand(m * k, Layout::Col));
            let product =
                Product { m, n, k, a: left, b: right, c: Shared(sums.as_mut_ptr()), ldc: n, epilogue: Epilogue::NONE };
            // SAFETY: the scratch memory holds both factors and the sums.
            unsafe { blocked::product(&self.pool, Blocking::usual(Isa::best(), self.threads), product) };
            let sums = &*sums;
            self.pool.each(self.threads, m, |row| {
                for (column, sum) in sums[row * n..][..n].iter().enumerate() {
                    // SAFETY: inside C; tasks have rows of their own.
                    unsafe { *out.add(row * n + column) = T::narrow(*sum) };
                }
            });
        });
        Ok(())
    }
}
