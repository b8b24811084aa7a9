//! One pass: sum and squares of a row in one go, then y; vectors along the row, rows dealt out to threads.
//!
//! Idea: the row is read from memory once and from the first cache a second time. A layer's variance is the mean square
//! less the square of the mean, both from the mean of the row's first k elements on: that one is no farther from the
//! row's mean than √(n/k) deviations, so that at most n/k roundings cancel, however far from zero the row lies.
//! Wins: RMSNorm, and rows that stay in a cache. Limits: none (`two_pass` is the more accurate one for long rows).

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::problem::Problem;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::simd::{Element, Lanes, Task};
use warplap_cpu::{Cpu, Typed};

use super::call::Call;
use super::row::Row;
use crate::norm::{Norm, NormProblem, Quant};
use crate::row_vectors::{CHAINS, Setting, counted, each, space, total};
use crate::typed::for_dtype;

/// Sum and squares in one go.
pub(super) struct OnePass;

impl Variant<Norm, Cpu> for OnePass {
    fn id(&self) -> &str {
        "one_pass"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &NormProblem, _: &Cpu) -> Fit {
        if p.dropout() > 0.0 {
            Fit::aside("what is dropped is drawn once, for a row that is kept")
        } else if p.quant != Quant::None {
            Fit::aside("a row is kept until its largest is known")
        } else {
            Fit::HIGH
        }
    }

    fn space(&self, p: &NormProblem, cpu: &Cpu) -> Space {
        space(p.work().bytes, cpu)
    }

    fn needs(&self, _: &NormProblem, config: &Config) -> Needs {
        Needs { threads: config.size("threads").unwrap_or(1) as u64, ..Needs::default() }
    }

    fn build(&self, p: &NormProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok(Box::new(Built { problem: *p, setting: Setting::read(config, cpu)? }))
    }
}

struct Built {
    problem: NormProblem,
    setting: Setting,
}

impl Kernel<Cpu> for Built {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.dtype, T => rows::<T>(&self.problem, &self.setting, args))
    }
}

fn rows<T: Element + Typed>(p: &NormProblem, setting: &Setting, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let call = Call::<T>::of(p, args)?;
    setting.each(p.rows as usize, call.n, |first, end| setting.isa.run(Run { call: &call, first, end }));
    Ok(())
}

/// Rows of a call, from the first to before the end.
struct Run<'a, T> {
    call: &'a Call<T>,
    first: usize,
    end: usize,
}

impl<T: Element> Task for Run<'_, T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let (n, Call { eps, layer, .. }) = (self.call.n, *self.call);
        for row in self.first..self.end {
            // SAFETY: the call has these rows of n elements, and this task alone writes them; the instruction set is
            // the caller's word.
            unsafe {
                let row = Row::of(self.call, row);
                let (mut sums, mut squares) = ([L::zero(); CHAINS], [L::zero(); CHAINS]);
                let begin = if layer { n.min(CHAINS * L::N) } else { 0 };
                each!(L, begin, |chain, at, count| sums[chain] = L::add(sums[chain], row.sums::<L>(at, count)));
                let pivot = total::<L>(sums) / begin.max(1) as f32;
                let from = L::splat(pivot);
                sums = [L::zero(); CHAINS];
                each!(L, n, |chain, at, count| {
                    let mut v = row.sums::<L>(at, count);
                    row.put_sums::<L>(at, count, v);
                    if layer {
                        v = counted::<L>(L::sub(v, from), count);
                        sums[chain] = L::add(sums[chain], v);
                    }
                    squares[chain] = L::fma(v, v, squares[chain]);
                });
                let (beyond, square) = (total::<L>(sums) / n as f32, total::<L>(squares) / n as f32);
                // Rounding may leave less than nothing, and what is no number stays so.
                let left = square - beyond * beyond;
                let inverse = 1.0 / (if left < 0.0 { 0.0 } else { left } + eps).sqrt();
                let mean = pivot + beyond;
                let (mean, inverse) = (L::splat(mean), L::splat(inverse));
                each!(L, n, |_, at, count| row.put::<L>(at, count, row.sums::<L>(at, count), mean, inverse));
            }
        }
    }
}
