//! The reference: plain loops over a row, one thread.
//!
//! Idea: places are sorted by what stands there, and exponentials are taken of those that come first. Wins: never by
//! design. Limits: none; it fits everything and is the fallback.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Variant};
use warplap_cpu::simd::Element;
use warplap_cpu::{Cpu, Typed};

use super::call::Call;
use crate::topk_softmax::{TopkSoftmax, TopkSoftmaxProblem};
use crate::typed::for_dtype;

/// Plain loops.
pub(super) struct Reference;

impl Variant<TopkSoftmax, Cpu> for Reference {
    fn id(&self) -> &str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &TopkSoftmaxProblem, _: &Cpu) -> Fit {
        Fit::LOW
    }

    fn space(&self, _: &TopkSoftmaxProblem, _: &Cpu) -> Space {
        Space::single()
    }

    fn build(&self, p: &TopkSoftmaxProblem, _: &Config, _: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok(Box::new(Loops(*p)))
    }
}

struct Loops(TopkSoftmaxProblem);

impl Kernel<Cpu> for Loops {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.0.dtype, T => rows::<T>(&self.0, args))
    }
}

fn rows<T: Element + Typed>(p: &TopkSoftmaxProblem, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let call = Call::<T>::of(p, args)?;
    for row in 0..p.rows as usize {
        // SAFETY: the problem has the row, and there is one thread.
        unsafe { call.plainly(row) };
    }
    Ok(())
}
