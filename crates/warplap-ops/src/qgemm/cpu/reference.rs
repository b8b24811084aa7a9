//! The reference: one dot product an element, one thread.
//!
//! Idea: the plainest loops; signed bytes are summed in i32, f8e4m3 in f32 with the factor of each block. Wins: never
//! by design. Limits: none; it fits everything and is the fallback.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Variant};
use warplap_cpu::simd::Element;
use warplap_cpu::{Cpu, Typed};

use super::call::{Floats, Ints, values};
use crate::qgemm::{BLOCK, Qgemm, QgemmProblem};
use crate::typed::for_dtype;

/// Plain loops.
pub(super) struct Reference;

impl Variant<Qgemm, Cpu> for Reference {
    fn id(&self) -> &str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &QgemmProblem, _: &Cpu) -> Fit {
        Fit::LOW
    }

    fn space(&self, _: &QgemmProblem, _: &Cpu) -> Space {
        Space::single()
    }

    fn build(&self, p: &QgemmProblem, _: &Config, _: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok(Box::new(Loops(*p)))
    }
}

struct Loops(QgemmProblem);

impl Kernel<Cpu> for Loops {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        match self.0.is_int() {
            true => ints(&self.0, args),
            false => for_dtype!(self.0.out, T => floats::<T>(&self.0, args)),
        }
    }
}

fn ints(p: &QgemmProblem, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let (call, n, k) = (Ints::of(p, args)?, p.n as usize, p.k as usize);
    for (at, to) in call.c.iter_mut().enumerate() {
        let (a, b) = (&call.a[at / n * k..][..k], &call.b[at % n * k..][..k]);
        // Beyond i32 a sum wraps, as the tensor cores' does.
        *to = a.iter().zip(b).fold(0i32, |sum, (x, y)| sum.wrapping_add(i32::from(*x) * i32::from(*y)));
    }
    Ok(())
}

fn floats<T: Element + Typed>(p: &QgemmProblem, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let (Floats { a, b, c, factors }, n, k) = (Floats::<T>::of(p, args)?, p.n as usize, p.k as usize);
    let values = values();
    let value = |code: u8| values[usize::from(code)];
    for (at, to) in c.iter_mut().enumerate() {
        let (row, column) = (at / n, at % n);
        let (a, b) = (&a[row * k..][..k], &b[column * k..][..k]);
        let blocks = a.chunks(BLOCK as usize).zip(b.chunks(BLOCK as usize)).enumerate();
        let sum = blocks.fold(0f32, |sum, (block, (a, b))| {
            let part: f32 = a.iter().zip(b).map(|(x, y)| value(x.0) * value(y.0)).sum();
            sum + part * factors.of(row, column, block)
        });
        *to = T::narrow(sum);
    }
    Ok(())
}
