//! The reference: plain loops over a row, one thread.
//!
//! Idea: the sum of products, then dx. Wins: never by design. Limits: none; it fits everything and is the fallback.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Variant};
use warplap_cpu::simd::Element;
use warplap_cpu::{Cpu, Typed};

use crate::softmax_grad::{SoftmaxGrad, SoftmaxGradProblem, slot};
use crate::typed::{self, for_dtype};

/// Plain loops.
pub(super) struct Reference;

/// Terms that are summed one after another: the error of a sum grows with the length of its chain.
const CHAIN: usize = 128;

impl Variant<SoftmaxGrad, Cpu> for Reference {
    fn id(&self) -> &str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &SoftmaxGradProblem, _: &Cpu) -> Fit {
        Fit::LOW
    }

    fn space(&self, _: &SoftmaxGradProblem, _: &Cpu) -> Space {
        Space::single()
    }

    fn build(&self, p: &SoftmaxGradProblem, _: &Config, _: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok(Box::new(Loops(*p)))
    }
}

struct Loops(SoftmaxGradProblem);

impl Kernel<Cpu> for Loops {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.0.0.dtype, T => rows::<T>(&self.0, args))
    }
}

fn rows<T: Element + Typed>(
    SoftmaxGradProblem(p): &SoftmaxGradProblem,
    args: &mut [Arg<'_, Cpu>],
) -> Result<(), Rejection> {
    let n = p.n as usize;
    let y = typed::read::<T>(args[slot::Y].read()?)?;
    let grad = typed::read::<T>(args[slot::GRAD].read()?)?;
    let dx = typed::write::<T>(args[slot::DX].write()?)?;
    for first in (0..p.len()).step_by(n) {
        let (y, grad) = (&y[first..first + n], &grad[first..first + n]);
        let part = |(y, g): (&[T], &[T])| y.iter().zip(g).map(|(y, g)| y.widen() * g.widen()).sum::<f32>();
        let delta: f32 = y.chunks(CHAIN).zip(grad.chunks(CHAIN)).map(part).sum();
        for ((dx, y), g) in dx[first..].iter_mut().zip(y).zip(grad) {
            *dx = T::narrow(p.scale() * y.widen() * (g.widen() - delta));
        }
    }
    Ok(())
}
