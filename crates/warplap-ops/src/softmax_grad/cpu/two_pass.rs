//! Two passes: the sum of products of a row, then dx; vectors along the row, rows dealt out to threads.
//!
//! Idea: the row is read from memory once and from the first cache a second time; dx may be written past the caches.
//! Wins: everything. Limits: none.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::problem::Problem;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::simd::{Element, Lanes, Task};
use warplap_cpu::{Cpu, Typed};

use crate::row_vectors::{CHAINS, Setting, each, load, put, streaming_space, total};
use crate::softmax_grad::{SoftmaxGrad, SoftmaxGradProblem, slot};
use crate::typed::{self, for_dtype};

/// A sum, then dx.
pub(super) struct TwoPass;

impl Variant<SoftmaxGrad, Cpu> for TwoPass {
    fn id(&self) -> &str {
        "two_pass"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &SoftmaxGradProblem, _: &Cpu) -> Fit {
        Fit::HIGH
    }

    fn space(&self, p: &SoftmaxGradProblem, cpu: &Cpu) -> Space {
        streaming_space(p.work().bytes, p.work().bytes / 3.0, cpu)
    }

    fn needs(&self, _: &SoftmaxGradProblem, config: &Config) -> Needs {
        Needs { threads: config.size("threads").unwrap_or(1) as u64, ..Needs::default() }
    }

    fn build(&self, p: &SoftmaxGradProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok(Box::new(Built { problem: *p, setting: Setting::read(config, cpu)? }))
    }
}

struct Built {
    problem: SoftmaxGradProblem,
    setting: Setting,
}

impl Kernel<Cpu> for Built {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.0.dtype, T => rows::<T>(&self.problem, &self.setting, args))
    }
}

/// The slots as addresses: several threads write dx, each its own rows.
struct Call<T> {
    y: *const T,
    grad: *const T,
    dx: *mut T,
    n: usize,
    scale: f32,
    streams: bool,
}

// SAFETY: what is read nobody writes, and each thread writes its own rows of dx.
unsafe impl<T: Send + Sync> Sync for Call<T> {}

fn rows<T: Element + Typed>(
    SoftmaxGradProblem(p): &SoftmaxGradProblem,
    setting: &Setting,
    args: &mut [Arg<'_, Cpu>],
) -> Result<(), Rejection> {
    let n = p.n as usize;
    let y = typed::read::<T>(args[slot::Y].read()?)?.as_ptr();
    let grad = typed::read::<T>(args[slot::GRAD].read()?)?.as_ptr();
    let dx = typed::write::<T>(args[slot::DX].write()?)?.as_mut_ptr();
    let call = Call { y, grad, dx, n, scale: p.scale(), streams: setting.streams(dx, n) };
    setting.each(p.rows as usize, n, |first, end| setting.isa.run(Run { call: &call, first, end }));
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
        let Call { y, grad, dx, n, scale, streams } = *self.call;
        for row in self.first..self.end {
            // SAFETY: the catalog hands out kernels that refuse other arguments than the signature's: there are these
            // rows of n elements, and this task alone writes them; the instruction set is the caller's word.
            unsafe {
                let (y, grad, dx) = (y.add(row * n), grad.add(row * n), dx.add(row * n));
                let mut parts = [L::zero(); CHAINS];
                each!(L, n, |chain, at, count| {
                    let (y, g) = (load::<L, T>(y.add(at), count), load::<L, T>(grad.add(at), count));
                    parts[chain] = L::fma(y, g, parts[chain]);
                });
                let (delta, scale) = (L::splat(total::<L>(parts)), L::splat(scale));
                each!(L, n, |_, at, count| {
                    let (y, g) = (load::<L, T>(y.add(at), count), load::<L, T>(grad.add(at), count));
                    put::<L, T>(dx.add(at), count, L::mul(L::mul(y, scale), L::sub(g, delta)), streams);
                });
            }
        }
        if streams {
            // SAFETY: the instruction set is the caller's word.
            unsafe { L::streamed() }
        }
    }
}
