//! The reference: plain loops over a row, one thread.
//!
//! Idea: the largest score, exponentials, their sum, then y, each in a loop of its own. Wins: never by design. Limits:
//! none; it fits everything and is the fallback.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Variant};
use warplap_cpu::simd::Element;
use warplap_cpu::{Cpu, Typed};

use crate::softmax::{Softmax, SoftmaxProblem, slot};
use crate::typed::{self, for_dtype};

/// Plain loops.
pub(super) struct Reference;

/// Terms that are summed one after another: the error of a sum grows with the length of its chain.
const CHAIN: usize = 128;

impl Variant<Softmax, Cpu> for Reference {
    fn id(&self) -> &str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &SoftmaxProblem, _: &Cpu) -> Fit {
        Fit::LOW
    }

    fn space(&self, _: &SoftmaxProblem, _: &Cpu) -> Space {
        Space::single()
    }

    fn build(&self, p: &SoftmaxProblem, _: &Config, _: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok(Box::new(Loops(*p)))
    }
}

struct Loops(SoftmaxProblem);

impl Kernel<Cpu> for Loops {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.0.dtype, T => rows::<T>(&self.0, args))
    }
}

fn rows<T: Element + Typed>(p: &SoftmaxProblem, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let n = p.n as usize;
    let x = typed::read::<T>(args[slot::X].read()?)?;
    let mask = args[slot::MASK].view().map(typed::read::<T>).transpose()?;
    let y = typed::write::<T>(args[slot::Y].write()?)?;
    let mut row = vec![0f32; n];
    for i in 0..p.rows as usize {
        let line = mask.map(|m| &m[p.mask_row(i as u64) as usize * n..][..n]);
        for (j, s) in row.iter_mut().enumerate() {
            *s = x[i * n + j].widen() * p.scale() + line.map_or(0.0, |m| m[j].widen());
        }
        let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        row.iter_mut().for_each(|s| *s = (*s - most).exp());
        let sum: f32 = row.chunks(CHAIN).map(|chain| chain.iter().sum::<f32>()).sum();
        for (y, s) in y[i * n..].iter_mut().zip(&row) {
            *y = T::narrow(s / sum);
        }
    }
    Ok(())
}
