//! Kept: the scores of a row stay in the first cache, become exponentials there, and leave once.
//!
//! Idea: three short loops over a row of f32; x is read from memory once, one exponential an element, and y may be
//! written past the caches. Wins: rows that the caches hold. Limits: scratch of one row a thread.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::problem::Problem;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::simd::{Element, Lanes, Task};
use warplap_cpu::{Cpu, Typed};

use super::call::{Call, Row};
use crate::row_vectors::{CHAINS, Setting, each, largest, put, streaming_space, total, weight, with_row};
use crate::softmax::{Softmax, SoftmaxProblem};
use crate::typed::for_dtype;

/// A row in the first cache.
pub(super) struct Kept;

impl Variant<Softmax, Cpu> for Kept {
    fn id(&self) -> &str {
        "kept"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &SoftmaxProblem, _: &Cpu) -> Fit {
        if p.n <= 1 << 18 { Fit::HIGH } else { Fit::MEDIUM }
    }

    fn space(&self, p: &SoftmaxProblem, cpu: &Cpu) -> Space {
        streaming_space(p.work().bytes, p.len() as f64 * p.dtype.bytes() as f64, cpu)
    }

    fn needs(&self, p: &SoftmaxProblem, config: &Config) -> Needs {
        let threads = config.size("threads").unwrap_or(1) as u64;
        Needs { threads, workspace: 4 * threads * p.n, ..Needs::default() }
    }

    fn build(&self, p: &SoftmaxProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        let workspace = self.needs(p, config).workspace;
        Ok(Box::new(Built { problem: *p, setting: Setting::read(config, cpu)?, workspace }))
    }
}

struct Built {
    problem: SoftmaxProblem,
    setting: Setting,
    workspace: u64,
}

impl Kernel<Cpu> for Built {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.dtype, T => rows::<T>(&self.problem, &self.setting, args))
    }

    fn workspace(&self) -> u64 {
        self.workspace
    }
}

fn rows<T: Element + Typed>(p: &SoftmaxProblem, setting: &Setting, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let (call, n) = (Call::<T>::of(p, args)?, p.n as usize);
    let streams = setting.streams(call.y, n);
    setting.each(p.rows as usize, n, |first, end| {
        with_row(n, |kept| setting.isa.run(Run { call: &call, kept, streams, first, end }));
    });
    Ok(())
}

/// Rows of a call, from the first to before the end, and room for one of them.
struct Run<'a, T> {
    call: &'a Call<T>,
    kept: &'a mut [f32],
    streams: bool,
    first: usize,
    end: usize,
}

impl<T: Element> Task for Run<'_, T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let n = self.call.problem.n as usize;
        let kept = self.kept.as_mut_ptr();
        for row in self.first..self.end {
            // SAFETY: the call has these rows of n elements, and this task alone writes them; `kept` holds n numbers
            // and a vector more; the instruction set is the caller's word.
            unsafe {
                let row = Row::of(self.call, row);
                let mut most = [L::splat(f32::NEG_INFINITY); CHAINS];
                each!(L, n, |chain, at, count| {
                    let v = row.scores::<L>(at, count);
                    L::store(kept.add(at), v);
                    if count == L::N {
                        most[chain] = L::max(v, most[chain]);
                    }
                });
                let mut top = largest::<L>(most);
                // Lanes beyond the row hold nothing that counts.
                for at in n - n % L::N..n {
                    top = top.max(*kept.add(at));
                }
                for at in n..n.next_multiple_of(L::N) {
                    *kept.add(at) = f32::NEG_INFINITY;
                }
                let (from, mut parts) = (L::splat(top), [L::zero(); CHAINS]);
                each!(L, n, |chain, at, _count| {
                    let v = weight::<L>(L::sub(L::load(kept.add(at)), from));
                    L::store(kept.add(at), v);
                    parts[chain] = L::add(parts[chain], v);
                });
                let inverse = L::splat(1.0 / total::<L>(parts));
                each!(L, n, |_, at, count| {
                    let v = L::mul(L::load(kept.add(at)), inverse);
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
