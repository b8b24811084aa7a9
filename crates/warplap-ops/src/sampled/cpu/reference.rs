//! The reference: plain loops over blocks, one thread, any layout.
//!
//! Idea: each element of a block is a dot product. Wins: never by design. Limits: none; it fits everything and is the
//! fallback.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Variant};
use warplap_cpu::simd::Element;
use warplap_cpu::{Cpu, Typed};

use super::call::{Call, square};
use crate::gemm::Layout;
use crate::sampled::{Sampled, SampledProblem};
use crate::typed::for_dtype;

/// Plain loops.
pub(super) struct Reference;

impl Variant<Sampled, Cpu> for Reference {
    fn id(&self) -> &str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &SampledProblem, _: &Cpu) -> Fit {
        Fit::LOW
    }

    fn space(&self, _: &SampledProblem, _: &Cpu) -> Space {
        Space::single()
    }

    fn build(&self, p: &SampledProblem, _: &Config, _: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        square(p)?;
        Ok(Box::new(Loops(*p)))
    }
}

struct Loops(SampledProblem);

impl Kernel<Cpu> for Loops {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.0.pattern.dtype, T => product::<T>(&self.0, args))
    }
}

fn product<T: Element + Typed>(problem: &SampledProblem, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let Call { row_ptr, col_idx, g, b, values } = Call::<T>::checked(problem, args)?;
    let (p, g_layout) = (&problem.pattern, problem.g);
    let (m, k, n, bs) = (p.m as usize, p.k as usize, p.n as usize, p.bs as usize);
    let at =
        |layout, rows: usize, row: usize, q: usize| if layout == Layout::Row { row * n + q } else { q * rows + row };
    for (row, ends) in row_ptr.windows(2).enumerate() {
        for block in ends[0] as usize..ends[1] as usize {
            let (top, left) = (row * bs, col_idx[block] as usize * bs);
            for (i, to) in values[block * bs * bs..][..bs * bs].iter_mut().enumerate() {
                let (r, c) = (top + i / bs, left + i % bs);
                let term = |q| g[at(g_layout, m, r, q)].widen() * b[at(p.b, k, c, q)].widen();
                *to = T::narrow((0..n).map(term).sum());
            }
        }
    }
    Ok(())
}
