//! The reference: one loop over rows, one thread, f32 sums.
//!
//! Idea: the plainest loop. Wins: never by design. Limits: none; it fits everything and is the fallback.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Variant};
use warplap_cpu::simd::Element;
use warplap_cpu::{Cpu, Typed};

use super::call::Call;
use crate::gemm::Layout;
use crate::grouped::{Grouped, GroupedProblem};
use crate::typed::for_dtype;

/// One loop.
pub(super) struct Reference;

impl Variant<Grouped, Cpu> for Reference {
    fn id(&self) -> &str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &GroupedProblem, _: &Cpu) -> Fit {
        Fit::LOW
    }

    fn space(&self, _: &GroupedProblem, _: &Cpu) -> Space {
        Space::single()
    }

    fn build(&self, p: &GroupedProblem, _: &Config, _: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok(Box::new(Loop(*p)))
    }
}

struct Loop(GroupedProblem);

impl Kernel<Cpu> for Loop {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.0.dtype, T => product::<T>(&self.0, args))
    }
}

fn product<T: Element + Typed>(p: &GroupedProblem, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let (call, n, k) = (Call::<T>::of(p, args)?, p.n as usize, p.k as usize);
    // From one row of a matrix to the next, and from column to column.
    let (down, right) = if p.w == Layout::Row { (n, 1) } else { (1, k) };
    let mut sums = vec![0f32; n];
    for (expert, rows) in call.groups.iter().enumerate() {
        let w = &call.w[expert * n * k..][..n * k];
        for row in rows.clone() {
            sums.fill(0.0);
            for (q, x) in call.x[row * k..][..k].iter().enumerate() {
                let line = w[q * down..].iter().step_by(right);
                sums.iter_mut().zip(line).for_each(|(sum, w)| *sum += x.widen() * w.widen());
            }
            for (j, sum) in sums.iter().enumerate() {
                // SAFETY: y holds rows·n elements, and nobody else writes them.
                unsafe { *call.y.add(row * n + j) = T::narrow(*sum) };
            }
        }
    }
    Ok(())
}
