//! The library: the `gemm` crate of the faer project, with its own blocking and threads.
//!
//! Idea: always race what a user could have called instead. Bias and activation go over its product afterwards, as a
//! user would do it. Wins: large well-shaped products. Limits: f32 only (it has no bf16, and sums some shapes of f16 in
//! f16).

use std::sync::{Arc, Mutex};

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::{Fit, Kernel, Variant};
use warplap_cpu::Cpu;
use warplap_cpu::pool::Pool;
use warplap_cpu::simd::Isa;

use super::kernel::epilogue::Epilogue;
use super::kernel::{buffers, epilogue};
use crate::faer::{self, Parallelism, Strided};
use crate::gemm::{Gemm, GemmProblem, Layout};

/// The `gemm` crate.
pub(super) struct Library;

impl Variant<Gemm, Cpu> for Library {
    fn id(&self) -> &str {
        "library"
    }

    fn source(&self) -> SourceHash {
        source!(faer::VERSION)
    }

    fn fit(&self, p: &GemmProblem, _: &Cpu) -> Fit {
        match p.dtype {
            DType::F32 => Fit::HIGH,
            // Its small and vector-like paths sum in half precision, which is not this operation's answer.
            DType::F16 => Fit::aside("the gemm crate sums some shapes of f16 in f16"),
            other => Fit::aside(format!("the gemm crate has no {other}")),
        }
    }

    fn space(&self, _: &GemmProblem, cpu: &Cpu) -> Space {
        Space::single().axis(Axis::ints("threads", [cpu.threads() as i64, 1]))
    }

    fn build(&self, p: &GemmProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        let threads = config.size("threads").unwrap_or(1);
        Ok(Box::new(Call { problem: *p, threads, pool: cpu.pool().clone() }))
    }

    fn is_library(&self) -> bool {
        true
    }
}

struct Call {
    problem: GemmProblem,
    threads: usize,
    pool: Arc<Pool>,
}

impl Kernel<Cpu> for Call {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        let p = &self.problem;
        let (epilogue, (a, b, out)) = (epilogue::<f32>(p, args)?, buffers::<f32>(args)?);
        let threads = if self.threads > 1 { Parallelism::Rayon(self.threads) } else { Parallelism::None };
        let (a, b, c) = (Address(a.as_ptr()), Address(b.as_ptr()), Address(out.as_mut_ptr().cast_const()));
        let run = move || {
            // SAFETY: the catalog hands out kernels that refuse other arguments than the signature's, so that the
            // slices hold what the problem spans; the strides are the problem's own, and c is borrowed mutably for the
            // time of the call.
            unsafe {
                faer::product(
                    (p.m as usize, p.n as usize, p.k as usize),
                    matrix(a.get(), p.a, p.lda),
                    matrix(b.get(), p.b, p.ldb),
                    Strided::rows(c.get().cast_mut(), p.ldc as usize),
                    threads,
                );
            }
        };
        if self.threads > 1 {
            self.pool.install(run)
        } else {
            run()
        }
        if !epilogue.is_none() {
            finish(self, epilogue, out);
        }
        Ok(())
    }
}

fn matrix(first: *const f32, layout: Layout, step: u64) -> Strided<*const f32> {
    let step = step as usize;
    match layout {
        Layout::Row => Strided::rows(first, step),
        Layout::Col => Strided { first, column: step, row: 1 },
    }
}

/// The epilogue, on the threads that multiplied.
fn finish(call: &Call, epilogue: Epilogue<'_, f32>, c: &mut [f32]) {
    let p = &call.problem;
    let (isa, rows) = (Isa::best(), (p.m as usize).div_ceil(call.threads.max(1)));
    let (n, ldc) = (p.n as usize, p.ldc as usize);
    // One lock per part, taken once: the safe way to hand out disjoint parts.
    let parts: Vec<Mutex<&mut [f32]>> = c[..p.c_len()].chunks_mut(rows * ldc).map(Mutex::new).collect();
    call.pool.each(call.threads, parts.len(), |i| {
        if let Ok(mut part) = parts[i].lock() {
            epilogue.finish(isa, &mut part, i * rows, ldc, n);
        }
    });
}

/// An address that may cross threads: the caller borrows the memory behind it for as long as they run.
#[derive(Clone, Copy)]
struct Address<T>(*const T);
// SAFETY: see the type.
unsafe impl<T> Send for Address<T> {}
impl<T> Address<T> {
    fn get(self) -> *const T {
        self.0
    }
}
