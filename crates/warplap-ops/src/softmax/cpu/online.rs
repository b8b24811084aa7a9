//! Online: sums of exponentials against the largest score so far, then y; a row is read twice and kept nowhere.
//!
//! Idea: blocks of a few vectors have their largest found first; where it is larger than any before, the sum so far is
//! made smaller. Two exponentials an element, no scratch. Wins: rows that no cache holds in f32, but one does in their
//! own type. Limits: none.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::problem::Problem;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::simd::{Element, Lanes, Task};
use warplap_cpu::{Cpu, Typed};

use super::call::{Call, Row};
use crate::row_vectors::{CHAINS, Setting, each, largest, put, shown, streaming_space, total, weight};
use crate::softmax::{Softmax, SoftmaxProblem};
use crate::typed::for_dtype;

/// A running sum.
pub(super) struct Online;

/// Elements of a block whose largest is found first: they stay in the first cache in between.
const BLOCK: usize = 1024;

impl Variant<Softmax, Cpu> for Online {
    fn id(&self) -> &str {
        "online"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &SoftmaxProblem, _: &Cpu) -> Fit {
        if p.n > 1 << 14 { Fit::HIGH } else { Fit::MEDIUM }
    }

    fn space(&self, p: &SoftmaxProblem, cpu: &Cpu) -> Space {
        streaming_space(p.work().bytes, p.len() as f64 * p.dtype.bytes() as f64, cpu)
    }

    fn needs(&self, _: &SoftmaxProblem, config: &Config) -> Needs {
        Needs { threads: config.size("threads").unwrap_or(1) as u64, ..Needs::default() }
    }

    fn build(&self, p: &SoftmaxProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok(Box::new(Built { problem: *p, setting: Setting::read(config, cpu)? }))
    }
}

struct Built {
    problem: SoftmaxProblem,
    setting: Setting,
}

impl Kernel<Cpu> for Built {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.dtype, T => rows::<T>(&self.problem, &self.setting, args))
    }
}

fn rows<T: Element + Typed>(p: &SoftmaxProblem, setting: &Setting, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let (call, n) = (Call::<T>::of(p, args)?, p.n as usize);
    let streams = setting.streams(call.y, n);
    setting.each(p.rows as usize, n, |first, end| setting.isa.run(Run { call: &call, streams, first, end }));
    Ok(())
}

/// Rows of a call, from the first to before the end.
struct Run<'a, T> {
    call: &'a Call<T>,
    streams: bool,
    first: usize,
    end: usize,
}

impl<T: Element> Task for Run<'_, T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let n = self.call.problem.n as usize;
        for row in self.first..self.end {
            // SAFETY: the call has these rows of n elements, and this task alone writes them; the instruction set is
            // the caller's word.
            unsafe {
                let row = Row::of(self.call, row);
                // The lowest number, not -inf: a difference of two of those is not a number.
                let (mut top, mut sum, mut seen) = (f32::MIN, 0f32, f32::NEG_INFINITY);
                let mut begin = 0;
                while begin < n {
                    let len = BLOCK.min(n - begin);
                    let mut most = [L::splat(f32::NEG_INFINITY); CHAINS];
                    each!(L, len, |chain, at, count| {
                        let v = row.scores::<L>(begin + at, count);
                        most[chain] = L::max(shown::<L>(v, count), most[chain]);
                    });
                    let block = largest::<L>(most);
                    seen = seen.max(block);
                    if block > top {
                        sum *= (top - block).exp();
                        top = block;
                    }
                    let (from, mut parts) = (L::splat(top), [L::zero(); CHAINS]);
                    each!(L, len, |chain, at, count| {
                        let v = weight::<L>(L::sub(shown::<L>(row.scores::<L>(begin + at, count), count), from));
                        parts[chain] = L::add(parts[chain], v);
                    });
                    sum += total::<L>(parts);
                    begin += len;
                }
                let (from, inverse) = (L::splat(if seen < top { seen } else { top }), L::splat(1.0 / sum));
                each!(L, n, |_, at, count| {
                    let v = shown::<L>(row.scores::<L>(at, count), count);
                    let v = L::mul(weight::<L>(L::sub(v, from)), inverse);
                    put::<L, T>(row.y.add(at), count, v, self.streams);
                });
            }
        }
        if self.streams {
            // SAFETY: the instruction set is the caller's word.
            unsafe { L::streamed() }
        }
    }
}
