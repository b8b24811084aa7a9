//! Online: sums of exponentials against the largest logit so far, block by block; vectors along the row, rows dealt out
//! to threads.
//!
//! Idea: logits are read from memory once; a block's largest is found while it comes into the first cache, its
//! exponentials are summed from there. The gradient reads the row a second time, from the second cache where that holds
//! one. Wins: everything. Limits: none.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::problem::Problem;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::simd::{Element, Lanes, Task};
use warplap_cpu::{Cpu, Typed};

use super::call::{Call, Label};
use crate::cross_entropy::{CrossEntropy, CrossEntropyProblem};
use crate::row_vectors::{CHAINS, Setting, each, largest, load, shown, space, store, total, weight};
use crate::typed::for_dtype;

/// A running sum.
pub(super) struct Online;

/// Logits of a block whose largest is found first: they stay in the first cache in between.
const BLOCK: usize = 2048;

impl Variant<CrossEntropy, Cpu> for Online {
    fn id(&self) -> &str {
        "online"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &CrossEntropyProblem, _: &Cpu) -> Fit {
        Fit::HIGH
    }

    fn space(&self, p: &CrossEntropyProblem, cpu: &Cpu) -> Space {
        space(p.work().bytes, cpu)
    }

    fn needs(&self, _: &CrossEntropyProblem, config: &Config) -> Needs {
        Needs { threads: config.size("threads").unwrap_or(1) as u64, ..Needs::default() }
    }

    fn build(&self, p: &CrossEntropyProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok(Box::new(Built { problem: *p, setting: Setting::read(config, cpu)? }))
    }
}

struct Built {
    problem: CrossEntropyProblem,
    setting: Setting,
}

impl Kernel<Cpu> for Built {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.dtype, T => rows::<T>(&self.problem, &self.setting, args))
    }
}

fn rows<T: Element + Typed>(
    p: &CrossEntropyProblem,
    setting: &Setting,
    args: &mut [Arg<'_, Cpu>],
) -> Result<(), Rejection> {
    let call = Call::<T>::of(p, args)?;
    setting.each(p.rows as usize, p.n as usize, |first, end| setting.isa.run(Run { call: &call, first, end }));
    call.finish();
    Ok(())
}

/// Rows of a call, from the first to before the end.
struct Run<'a, 'b, T> {
    call: &'a Call<'b, T>,
    first: usize,
    end: usize,
}

impl<T: Element> Task for Run<'_, '_, T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let (call, n, p) = (self.call, self.call.problem.n as usize, self.call.problem);
        for row in self.first..self.end {
            // SAFETY: the call has these rows of n logits, and this task alone has them; the instruction set is the
            // caller's word.
            unsafe {
                let x = call.logits.add(row * n);
                // The lowest number, not -inf: a difference of two of those is not a number.
                let (mut top, mut sum, mut plain, mut begin) = (f32::MIN, 0f32, 0f32, 0);
                while begin < n {
                    let len = BLOCK.min(n - begin);
                    let (mut most, mut parts) = ([L::splat(f32::NEG_INFINITY); CHAINS], [L::zero(); CHAINS]);
                    if p.smoothing() > 0.0 {
                        each!(L, len, |chain, at, count| {
                            parts[chain] = L::add(parts[chain], load::<L, T>(x.add(begin + at), count));
                        });
                        plain += total::<L>(parts);
                        parts = [L::zero(); CHAINS];
                    }
                    each!(L, len, |chain, at, count| {
                        let v = shown::<L>(load::<L, T>(x.add(begin + at), count), count);
                        most[chain] = L::max(v, most[chain]);
                    });
                    let block = largest::<L>(most);
                    if block > top {
                        sum *= (top - block).exp();
                        top = block;
                    }
                    let from = L::splat(top);
                    each!(L, len, |chain, at, count| {
                        let v = shown::<L>(load::<L, T>(x.add(begin + at), count), count);
                        parts[chain] = L::add(parts[chain], weight::<L>(L::sub(v, from)));
                    });
                    sum += total::<L>(parts);
                    begin += len;
                }
                let (lse, label) = (top + sum.ln(), call.label(row));
                let picked = if let Label::Column(column) = label { (*x.add(column)).widen() } else { 0.0 };
                call.put_loss(row, lse, picked, plain);
                if p.grad {
                    let to = call.gradient.add(row * n);
                    let [grown, smoothed, hit] = match label {
                        Label::Ignored => [0.0; 3],
                        _ => call.factors(lse),
                    };
                    // Of x - largest, which is exact where it counts, not of x - lse.
                    let (from, less) = (L::splat(top), L::splat(-smoothed));
                    let by = L::splat(grown / sum);
                    if label == Label::Ignored {
                        each!(L, n, |_, at, count| store::<L, T>(to.add(at), count, L::zero()));
                    } else {
                        each!(L, n, |_, at, count| {
                            let v = shown::<L>(load::<L, T>(x.add(at), count), count);
                            let v = weight::<L>(L::sub(v, from));
                            store::<L, T>(to.add(at), count, L::fma(v, by, less));
                        });
                    }
                    if let Label::Column(column) = label {
                        let slope = grown / sum * (picked - top).exp() - smoothed - hit;
                        *to.add(column) = T::narrow(slope);
                    }
                }
            }
        }
    }
}
