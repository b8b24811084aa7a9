//! The reference: plain loops over a row, one thread.
//!
//! Idea: the largest logit, the sum of exponentials, the loss, the gradient, each in a loop of its own. Wins: never by
//! design. Limits: none; it fits everything and is the fallback.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Variant};
use warplap_cpu::simd::Element;
use warplap_cpu::{Cpu, Typed};

use super::call::{Call, Label};
use crate::cross_entropy::{CrossEntropy, CrossEntropyProblem};
use crate::typed::for_dtype;

/// Plain loops.
pub(super) struct Reference;

/// Terms that are summed one after another: the error of a sum grows with the length of its chain.
const CHAIN: usize = 128;

impl Variant<CrossEntropy, Cpu> for Reference {
    fn id(&self) -> &str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &CrossEntropyProblem, _: &Cpu) -> Fit {
        Fit::LOW
    }

    fn space(&self, _: &CrossEntropyProblem, _: &Cpu) -> Space {
        Space::single()
    }

    fn build(&self, p: &CrossEntropyProblem, _: &Config, _: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok(Box::new(Loops(*p)))
    }
}

struct Loops(CrossEntropyProblem);

impl Kernel<Cpu> for Loops {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.0.dtype, T => rows::<T>(&self.0, args))
    }
}

fn rows<T: Element + Typed>(p: &CrossEntropyProblem, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let (call, n) = (Call::<T>::of(p, args)?, p.n as usize);
    let mut x = vec![0f32; n];
    for row in 0..p.rows as usize {
        // SAFETY: the call has this row of n logits, and this thread alone has it.
        x.iter_mut().enumerate().for_each(|(j, x)| *x = unsafe { *call.logits.add(row * n + j) }.widen());
        let most = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let over = |term: &dyn Fn(f32) -> f32| -> f32 {
            x.chunks(CHAIN).map(|chain| chain.iter().map(|x| term(*x)).sum::<f32>()).sum()
        };
        let lse = most + over(&|x| (x - most).exp()).ln();
        let label = call.label(row);
        let picked = if let Label::Column(column) = label { x[column] } else { 0.0 };
        // SAFETY: the problem has the row, and there is one thread.
        unsafe { call.put_loss(row, lse, picked, over(&|x| x)) };
        if p.grad {
            let [grown, smoothed, hit] = call.factors(lse);
            for (j, x) in x.iter().enumerate() {
                let hit = if label == Label::Column(j) { hit } else { 0.0 };
                let slope = if label == Label::Ignored { 0.0 } else { grown * (x - lse).exp() - smoothed - hit };
                // SAFETY: as above; with `grad` there is a place for it.
                unsafe { *call.gradient.add(row * n + j) = T::narrow(slope) };
            }
        }
    }
    call.finish();
    Ok(())
}
