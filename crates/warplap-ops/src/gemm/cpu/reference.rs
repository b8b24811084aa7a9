//! The reference: three loops, one thread, any layout.
//!
//! Idea: row by row, adding multiples of B's rows, so that a row-major B is read in order. Wins: never by design, but
//! tiny problems leave nothing to gain. Limits: none; it fits everything and is the fallback.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Variant};
use warplap_cpu::simd::Element;
use warplap_cpu::{Cpu, Typed};

use super::kernel::{buffers, epilogue};
use crate::gemm::{Activation, Gemm, GemmProblem, Layout};
use crate::typed::for_dtype;

/// Three loops.
pub(super) struct Reference;

impl Variant<Gemm, Cpu> for Reference {
    fn id(&self) -> &str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &GemmProblem, _: &Cpu) -> Fit {
        Fit::LOW
    }

    fn space(&self, _: &GemmProblem, _: &Cpu) -> Space {
        Space::single()
    }

    fn build(&self, p: &GemmProblem, _: &Config, _: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok(Box::new(Loops(*p)))
    }
}

struct Loops(GemmProblem);

impl Kernel<Cpu> for Loops {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.0.dtype, T => product::<T>(&self.0, args))
    }
}

fn product<T: Element + Typed>(p: &GemmProblem, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let (epilogue, (a, b, c)) = (epilogue::<T>(p, args)?, buffers::<T>(args)?);
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
        if let Some(factors) = epilogue.scale {
            let factor = if factors.len() == 1 { factors[0] } else { factors[i] };
            row.iter_mut().for_each(|sum| *sum *= factor);
        }
        if let Some(bias) = epilogue.bias {
            row.iter_mut().zip(bias).for_each(|(sum, b)| *sum += b.widen());
        }
        if p.act != Activation::None {
            row.iter_mut().for_each(|sum| *sum = p.act.of(f64::from(*sum)) as f32);
        }
        if let Some(joined) = epilogue.joined {
            let other = joined.elements[i * joined.row..].iter();
            let of = |sum: f32, other: &T| p.join.of(f64::from(sum), f64::from(other.widen())) as f32;
            row.iter_mut().zip(other).for_each(|(sum, other)| *sum = of(*sum, other));
        }
        for (to, sum) in c[i * p.ldc as usize..].iter_mut().zip(&row) {
            *to = T::narrow(*sum);
        }
    }
    Ok(())
}
