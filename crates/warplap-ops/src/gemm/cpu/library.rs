//! The library: the `gemm` crate of the faer project, with its own blocking and threads.
//!
//! Idea: always race what a user could have called instead. Bias and activation go over its product afterwards, as a user
//! would do it. Wins: large well-shaped products. Limits: f32 only (it has no bf16, and sums some shapes of f16 in f16).

use std::sync::{Arc, Mutex};

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::{Fit, Kernel, Variant};
use warplap_cpu::pool::Pool;
use warplap_cpu::simd::{Element, Isa};
use warplap_cpu::{Cpu, Typed};

use super::kernel::epilogue::Epilogue;
use super::kernel::{buffers, epilogue};
use crate::gemm::{Gemm, GemmProblem, Layout};
use crate::typed::for_dtype;

/// The `gemm` crate.
pub(super) struct Library;

impl Variant<Gemm, Cpu> for Library {
    fn id(&self) -> &str {
        "library"
    }

    fn source(&self) -> SourceHash {
        source!()
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
        for_dtype!(self.problem.dtype, T => call::<T>(self, args))
    }
}

fn call<T: Element + Typed>(call: &Call, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let p = &call.problem;
    let (epilogue, (a, b, out)) = (epilogue::<T>(p, args)?, buffers::<T>(args)?);
    let strides = |layout, ld: u64| match layout {
        Layout::Row => (1isize, ld as isize),
        Layout::Col => (ld as isize, 1isize),
    };
    let ((a_col, a_row), (b_col, b_row)) = (strides(p.a, p.lda), strides(p.b, p.ldb));
    let threads = if call.threads > 1 { gemm::Parallelism::Rayon(call.threads) } else { gemm::Parallelism::None };
    let (a, b, c) = (Address(a.as_ptr()), Address(b.as_ptr()), Address(out.as_mut_ptr().cast_const()));
    let run = move || {
        let (a, b, c) = (a.get(), b.get(), c.get().cast_mut());
        // SAFETY: the catalog hands out kernels that refuse other arguments than the signature's, so that the slices
        // hold what the problem spans; the strides are the problem's own, and c is borrowed mutably for the time of the
        // call.
        unsafe {
            gemm::gemm(
                p.m as usize,
                p.n as usize,
                p.k as usize,
                c,
                1,
                p.ldc as isize,
                false,
                a,
                a_col,
                a_row,
                b,
                b_col,
                b_row,
                T::narrow(0.0),
                T::narrow(1.0),
                false,
                false,
                false,
                threads,
            );
        }
    };
    if call.threads > 1 {
        call.pool.install(run)
    } else {
        run()
    }
    if !epilogue.is_none() {
        finish(call, epilogue, out);
    }
    Ok(())
}

/// Bias and activation, on the threads that multiplied.
fn finish<T: Element>(call: &Call, epilogue: Epilogue<'_, T>, c: &mut [T]) {
    let p = &call.problem;
    let (isa, rows) = (Isa::best(), (p.m as usize).div_ceil(call.threads.max(1)));
    let (n, ldc) = (p.n as usize, p.ldc as usize);
    // One lock per part, taken once: the safe way to hand out disjoint parts.
    let parts: Vec<Mutex<&mut [T]>> = c[..p.c_len()].chunks_mut(rows * ldc).map(Mutex::new).collect();
    call.pool.each(call.threads, parts.len(), |i| {
        if let Ok(mut part) = parts[i].lock() {
            epilogue.finish(isa, &mut part, ldc, n);
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
