//! The reference: plain loops over rows, one thread.
//!
//! Idea: one element after another, activated in double precision. Wins: never by design. Limits: none; it fits
//! everything and is the fallback.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Variant};
use warplap_cpu::simd::Element;
use warplap_cpu::{Cpu, Typed};

use super::call::Call;
use crate::gated::{Gated, GatedProblem};
use crate::typed::for_dtype;

/// Plain loops.
pub(super) struct Reference;

impl Variant<Gated, Cpu> for Reference {
    fn id(&self) -> &str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &GatedProblem, _: &Cpu) -> Fit {
        Fit::LOW
    }

    fn space(&self, _: &GatedProblem, _: &Cpu) -> Space {
        Space::single()
    }

    fn build(&self, p: &GatedProblem, _: &Config, _: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok(Box::new(Loops(*p)))
    }
}

struct Loops(GatedProblem);

impl Kernel<Cpu> for Loops {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.0.dtype, T => rows::<T>(&self.0, args))
    }
}

fn rows<T: Element + Typed>(p: &GatedProblem, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let call = Call::<T>::of(p, args)?;
    for row in 0..p.rows as usize {
        let (a, b, y) = call.row(row);
        for i in 0..p.n as usize {
            // SAFETY: the call has rows of n elements, and b where it is not null; there is one thread.
            unsafe {
                let other = if b.is_null() { 0.0 } else { (*b.add(i)).widen() };
                let activated = p.act.of(f64::from((*a.add(i)).widen()));
                *y.add(i) = T::narrow(p.join.of(activated, f64::from(other)) as f32);
            }
        }
    }
    Ok(())
}
