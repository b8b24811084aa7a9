//! The reference: three loops, one thread, any layout.
//!
//! Idea: row by row, adding multiples of B's rows, so that a row-major B is read in order. Wins: never by design, but
//! tiny problems leave nothing to gain. Limits: none; it fits everything and is the fallback.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Variant};
use warplap_cpu::simd::Element;
use warplap_cpu::{Cpu, Typed};

use crate::gemm::{Gemm, GemmArgs, GemmProblem, Layout};
use crate::typed::for_dtype;

/// Three loops.
pub(super) struct Reference;

impl Variant<Gemm, Cpu> for Reference {
    fn id(&self) -> &str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        SourceHash::of(&[include_str!("reference.rs")])
    }

    fn fit(&self, _: &GemmProblem, _: &Cpu) -> Fit {
        Fit::LOW
    }

    fn space(&self, _: &GemmProblem, _: &Cpu) -> Space {
        Space::single()
    }

    fn build(&self, _: &GemmProblem, _: &Config, _: &Cpu) -> Result<Box<dyn Kernel<Gemm, Cpu>>, Rejection> {
        Ok(Box::new(Loops))
    }
}

struct Loops;

impl Kernel<Gemm, Cpu> for Loops {
    fn launch(&self, args: GemmArgs<'_, Cpu>, _: &()) -> Result<(), Rejection> {
        for_dtype!(args.problem.dtype, T => product::<T>(args))
    }
}

fn product<T: Element + Typed>(args: GemmArgs<'_, Cpu>) -> Result<(), Rejection> {
    let p = args.problem;
    let (a, b, c) = args.typed::<T>()?;
    let at = |layout, ld: u64, i: usize, j: usize| match layout {
        Layout::Row => i * ld as usize + j,
        Layout::Col => j * ld as usize + i,
    };
    let mut row = vec![0f32; p.n as usize];
    for i in 0..p.m as usize {
        row.fill(0.0);
        for q in 0..p.k as usize {
            let x = a[at(p.a, p.lda, i, q)].widen();
            if p.b == Layout::Row {
                let line = &b[q * p.ldb as usize..][..row.len()];
                for (sum, y) in row.iter_mut().zip(line) {
                    *sum += x * y.widen();
                }
            } else {
                for (j, sum) in row.iter_mut().enumerate() {
                    *sum += x * b[at(p.b, p.ldb, q, j)].widen();
                }
            }
        }
        for (to, sum) in c[i * p.ldc as usize..].iter_mut().zip(&row) {
            *to = T::narrow(*sum);
        }
    }
    Ok(())
}
