//! The reference: plain loops over a row, one thread.
//!
//! Idea: the norm, the two means, then the slopes, each in a loop of its own; sums over rows are in f64. Wins: never by
//! design. Limits: none; it fits everything and is the fallback.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Variant};
use warplap_cpu::simd::Element;
use warplap_cpu::{Cpu, Typed};

use super::call::Call;
use crate::norm_grad::{NormGrad, NormGradProblem};
use crate::philox::Dropout;
use crate::typed::for_dtype;

/// Plain loops.
pub(super) struct Reference;

/// Terms that are summed one after another: the error of a sum grows with the length of its chain.
const CHAIN: usize = 128;

impl Variant<NormGrad, Cpu> for Reference {
    fn id(&self) -> &str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &NormGradProblem, _: &Cpu) -> Fit {
        Fit::LOW
    }

    fn space(&self, _: &NormGradProblem, _: &Cpu) -> Space {
        Space::single()
    }

    fn build(&self, p: &NormGradProblem, _: &Config, _: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok(Box::new(Loops(*p)))
    }
}

struct Loops(NormGradProblem);

impl Kernel<Cpu> for Loops {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.0.norm.dtype, T => rows::<T>(&self.0, args))
    }
}

/// The mean over a row.
fn mean(row: &[f32], term: impl Fn(usize, f32) -> f32) -> f32 {
    let chain =
        |(c, chain): (usize, &[f32])| -> f32 { chain.iter().enumerate().map(|(i, x)| term(c * CHAIN + i, *x)).sum() };
    row.chunks(CHAIN).enumerate().map(chain).sum::<f32>() / row.len() as f32
}

fn rows<T: Element + Typed>(p: &NormGradProblem, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let call = Call::<T>::of(p, args)?;
    let (n, dropout) = (call.n, Dropout::new(p.norm.dropout()));
    let (mut h, mut dy, mut factors) = (vec![0f32; n], vec![0f32; n], vec![1f32; n]);
    let (mut dweight, mut dbias) = (vec![0f64; n], vec![0f64; n]);
    // SAFETY: the call has these rows of n elements and these columns, and there is one thread.
    unsafe {
        let at = |from: *const T, i: usize, none: f32| if from.is_null() { none } else { (*from.add(i)).widen() };
        for first in (0..p.norm.len()).step_by(n) {
            h.iter_mut().enumerate().for_each(|(j, h)| *h = at(call.s, first + j, 0.0));
            dy.iter_mut().enumerate().for_each(|(j, dy)| *dy = at(call.grad, first + j, 0.0));
            let middle = if call.layer { mean(&h, |_, s| s) } else { 0.0 };
            let inverse = 1.0 / (mean(&h, |_, s| (s - middle) * (s - middle)) + call.eps).sqrt();
            h.iter_mut().for_each(|h| *h = (*h - middle) * inverse);
            let g = |j: usize| dy[j] * at(call.weight, j, 1.0);
            let (along, level) = (mean(&h, |j, h| h * g(j)), if call.layer { mean(&h, |j, _| g(j)) } else { 0.0 });
            if !call.dx.is_null() {
                dropout.factors(first as u64, call.seed, &mut factors);
            }
            for j in 0..n {
                let ds = inverse * (g(j) - level - h[j] * along) + at(call.total, first + j, 0.0);
                *call.ds.add(first + j) = T::narrow(ds);
                if !call.dx.is_null() {
                    *call.dx.add(first + j) = T::narrow(ds * factors[j]);
                }
                dweight[j] += f64::from(h[j] * dy[j]);
                dbias[j] += f64::from(dy[j]);
            }
        }
        for j in 0..n {
            if !call.dweight.is_null() {
                *call.dweight.add(j) = T::narrow(dweight[j] as f32);
            }
            if !call.dbias.is_null() {
                *call.dbias.add(j) = T::narrow(dbias[j] as f32);
            }
        }
    }
    Ok(())
}
