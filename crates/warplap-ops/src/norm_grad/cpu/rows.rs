//! Rows in vectors, dealt out to threads; each run of rows has sums over rows of its own, which are added up at the end.
//!
//! Idea: a row's s and gradient are read from memory once and stay in the first cache for the slopes. Wins: everything.
//! Limits: scratch of two rows a run of rows, and of one a thread where elements were dropped.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::problem::Problem;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::simd::{Element, Lanes, Task};
use warplap_cpu::{Cpu, Typed};

use super::call::Call;
use crate::norm_grad::{NormGrad, NormGradProblem};
use crate::philox::Dropout;
use crate::row_vectors::{CHAINS, Setting, counted, each, load, space, store, total, with_row};
use crate::typed::for_dtype;

/// Rows in vectors.
pub(super) struct Rows;

impl Variant<NormGrad, Cpu> for Rows {
    fn id(&self) -> &str {
        "rows"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &NormGradProblem, _: &Cpu) -> Fit {
        Fit::HIGH
    }

    fn space(&self, p: &NormGradProblem, cpu: &Cpu) -> Space {
        space(p.work().bytes, cpu)
    }

    fn needs(&self, p: &NormGradProblem, config: &Config) -> Needs {
        let threads = config.size("threads").unwrap_or(1) as u64;
        Needs { threads, workspace: 4 * p.norm.n * 9 * threads, ..Needs::default() }
    }

    fn build(&self, p: &NormGradProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        let workspace = self.needs(p, config).workspace;
        Ok(Box::new(Built { problem: *p, setting: Setting::read(config, cpu)?, workspace }))
    }
}

struct Built {
    problem: NormGradProblem,
    setting: Setting,
    workspace: u64,
}

impl Kernel<Cpu> for Built {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.norm.dtype, T => rows::<T>(&self.problem, &self.setting, args))
    }

    fn workspace(&self) -> u64 {
        self.workspace
    }
}

/// Sums over rows, of all runs one after another: an address that each run writes its own part of.
struct Sums(*mut f32);

// SAFETY: each run has a part of its own.
unsafe impl Sync for Sums {}

fn rows<T: Element + Typed>(
    p: &NormGradProblem,
    setting: &Setting,
    args: &mut [Arg<'_, Cpu>],
) -> Result<(), Rejection> {
    let call = Call::<T>::of(p, args)?;
    let (n, rows) = (call.n, p.norm.rows as usize);
    let (runs, run) = setting.runs(rows, n);
    let mut sums = vec![0f32; runs * 2 * n];
    let to = Sums(sums.as_mut_ptr());
    let to = &to;
    setting.each(rows, n, |first, end| {
        // SAFETY: there are so many runs, and this one alone has this part.
        let sums = unsafe { to.0.add(first / run * 2 * n) };
        with_row(n, |factors| {
            let dropped = (p.norm.dropout() > 0.0).then(|| (Dropout::new(p.norm.dropout()), factors));
            setting.isa.run(Run { call: &call, sums, dropped, first, end });
        });
    });
    for (place, to) in [call.dweight, call.dbias].into_iter().enumerate() {
        for j in (0..n).filter(|_| !to.is_null()) {
            let sum: f32 = (0..runs).map(|run| sums[(2 * run + place) * n + j]).sum();
            // SAFETY: the slot holds n elements, and the threads are done.
            unsafe { *to.add(j) = T::narrow(sum) };
        }
    }
    Ok(())
}

/// Rows of a call, from the first to before the end, and where their sums go.
struct Run<'a, T> {
    call: &'a Call<T>,
    sums: *mut f32,
    dropped: Option<(Dropout, &'a mut [f32])>,
    first: usize,
    end: usize,
}

impl<T: Element> Task for Run<'_, T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(mut self) {
        let Call { weight, n, eps, layer, .. } = *self.call;
        let (dweight, dbias) = (self.sums, self.sums.wrapping_add(n));
        for row in self.first..self.end {
            let at_row = row * n;
            if let Some((dropout, factors)) = &mut self.dropped {
                dropout.factors(at_row as u64, self.call.seed, &mut factors[..n]);
            }
            // SAFETY: the call has these rows of n elements and n columns, the sums two rows; this task alone writes
            // them; the instruction set is the caller's word.
            unsafe {
                let (s, grad) = (self.call.s.add(at_row), self.call.grad.add(at_row));
                let mut parts = [L::zero(); CHAINS];
                let mut middle = 0.0;
                if layer {
                    each!(L, n, |chain, at, count| {
                        parts[chain] = L::add(parts[chain], load::<L, T>(s.add(at), count));
                    });
                    (middle, parts) = (total::<L>(parts) / n as f32, [L::zero(); CHAINS]);
                }
                let from = L::splat(middle);
                let (mut along, mut level) = ([L::zero(); CHAINS], [L::zero(); CHAINS]);
                each!(L, n, |chain, at, count| {
                    let v = counted::<L>(L::sub(load::<L, T>(s.add(at), count), from), count);
                    let mut g = load::<L, T>(grad.add(at), count);
                    if !weight.is_null() {
                        g = L::mul(g, load::<L, T>(weight.add(at), count));
                    }
                    parts[chain] = L::fma(v, v, parts[chain]);
                    along[chain] = L::fma(v, g, along[chain]);
                    level[chain] = L::add(level[chain], g);
                });
                let inverse = 1.0 / (total::<L>(parts) / n as f32 + eps).sqrt();
                let along = L::splat(total::<L>(along) * inverse / n as f32);
                let level = L::splat(if layer { total::<L>(level) / n as f32 } else { 0.0 });
                let inverse = L::splat(inverse);
                each!(L, n, |_, at, count| {
                    let h = L::mul(L::sub(load::<L, T>(s.add(at), count), from), inverse);
                    let dy = load::<L, T>(grad.add(at), count);
                    let g = match weight.is_null() {
                        true => dy,
                        false => L::mul(dy, load::<L, T>(weight.add(at), count)),
                    };
                    let mut ds = L::mul(inverse, L::sub(L::sub(g, level), L::mul(h, along)));
                    if !self.call.total.is_null() {
                        ds = L::add(ds, load::<L, T>(self.call.total.add(at_row + at), count));
                    }
                    store::<L, T>(self.call.ds.add(at_row + at), count, ds);
                    if let Some((_, factors)) = &self.dropped {
                        let dx = L::mul(ds, L::load(factors.as_ptr().add(at)));
                        store::<L, T>(self.call.dx.add(at_row + at), count, dx);
                    }
                    let sum = load::<L, f32>(dweight.add(at), count);
                    store::<L, f32>(dweight.add(at), count, L::fma(h, dy, sum));
                    let sum = load::<L, f32>(dbias.add(at), count);
                    store::<L, f32>(dbias.add(at), count, L::add(sum, dy));
                });
            }
        }
    }
}
