//! Two passes: the mean first, then squares of what is left, then y; vectors along the row, rows dealt out to threads.
//!
//! Idea: x + residual is widened once into a row of f32 that stays in the first cache, and everything else reads that.
//! Wins: LayerNorm, of which no digits cancel whatever its mean, and half types with a residual, whose two rows are
//! widened once; codes, whose row is done before its largest is known. Limits: scratch of one row a thread.

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
use crate::norm::{Kind, Norm, NormProblem, Quant, quant};
use crate::philox::Dropout;
use crate::row_vectors::{CHAINS, Setting, counted, each, largest, space, total, with_row};
use crate::typed::for_dtype;

/// The mean first.
pub(super) struct TwoPass;

impl Variant<Norm, Cpu> for TwoPass {
    fn id(&self) -> &str {
        "two_pass"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &NormProblem, _: &Cpu) -> Fit {
        let keeps = p.kind == Kind::Layer || p.dropout() > 0.0 || p.quant != Quant::None;
        if keeps { Fit::HIGH } else { Fit::MEDIUM }
    }

    fn space(&self, p: &NormProblem, cpu: &Cpu) -> Space {
        space(p.work().bytes, cpu)
    }

    fn needs(&self, p: &NormProblem, config: &Config) -> Needs {
        let threads = config.size("threads").unwrap_or(1) as u64;
        let rows = if p.dropout() > 0.0 { 2 } else { 1 };
        Needs { threads, workspace: 4 * threads * p.n * rows, ..Needs::default() }
    }

    fn build(&self, p: &NormProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        let workspace = self.needs(p, config).workspace;
        Ok(Box::new(Built { problem: *p, setting: Setting::read(config, cpu)?, workspace }))
    }
}

struct Built {
    problem: NormProblem,
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

fn rows<T: Element + Typed>(p: &NormProblem, setting: &Setting, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let call = Call::<T>::of(p, args)?;
    setting.each(p.rows as usize, call.n, |first, end| {
        // A second row holds the factors of what is dropped.
        let room = call.n.next_multiple_of(64) + 64;
        with_row(2 * room, |rows| {
            let (kept, factors) = rows.split_at_mut(room);
            let dropped = (p.dropout() > 0.0).then(|| Dropped { dropout: Dropout::new(p.dropout()), factors });
            setting.isa.run(Run { call: &call, kept, dropped, first, end });
        });
    });
    Ok(())
}

/// What is dropped, and room for the factors of a row.
struct Dropped<'a> {
    dropout: Dropout,
    factors: &'a mut [f32],
}

/// Rows of a call, from the first to before the end, and room for one of them.
struct Run<'a, T> {
    call: &'a Call<T>,
    kept: &'a mut [f32],
    dropped: Option<Dropped<'a>>,
    first: usize,
    end: usize,
}

impl<T: Element> Task for Run<'_, T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(mut self) {
        let (n, Call { eps, layer, .. }) = (self.call.n, *self.call);
        let kept = self.kept.as_mut_ptr();
        for row in self.first..self.end {
            let mut factors = std::ptr::null();
            if let Some(Dropped { dropout, factors: to }) = &mut self.dropped {
                dropout.factors((row * n) as u64, self.call.seed, &mut to[..n]);
                factors = to.as_ptr();
            }
            // SAFETY: the call has these rows of n elements, and this task alone writes them; `kept` holds n numbers
            // and a vector more; the instruction set is the caller's word.
            unsafe {
                let (number, row) = (row, Row::of(self.call, row).dropped(factors));
                let mut parts = [L::zero(); CHAINS];
                each!(L, n, |chain, at, count| {
                    let v = row.sums::<L>(at, count);
                    row.put_sums::<L>(at, count, v);
                    // Lanes that do not count hold zero.
                    L::store(kept.add(at), v);
                    parts[chain] = if layer { L::add(parts[chain], v) } else { L::fma(v, v, parts[chain]) };
                });
                let (mut mean, mut square) = (0.0, total::<L>(parts) / n as f32);
                if layer {
                    (mean, parts) = (square, [L::zero(); CHAINS]);
                    let middle = L::splat(mean);
                    each!(L, n, |chain, at, count| {
                        let v = counted::<L>(L::sub(L::load(kept.add(at)), middle), count);
                        parts[chain] = L::fma(v, v, parts[chain]);
                    });
                    square = total::<L>(parts) / n as f32;
                }
                let (mean, inverse) = (L::splat(mean), L::splat(1.0 / (square + eps).sqrt()));
                if self.call.quant == Quant::None {
                    each!(L, n, |_, at, count| row.put::<L>(at, count, L::load(kept.add(at)), mean, inverse));
                    continue;
                }
                let (mut most, mut marks) = ([L::zero(); CHAINS], [L::zero(); CHAINS]);
                each!(L, n, |chain, at, count| {
                    let y = row.normed::<L>(at, count, L::load(kept.add(at)), mean, inverse);
                    let y = counted::<L>(y, count);
                    L::store(kept.add(at), y);
                    most[chain] = L::max(most[chain], L::max(y, L::sub(L::zero(), y)));
                    // The larger of two forgets what is no number.
                    marks[chain] = L::fma(y, L::zero(), marks[chain]);
                });
                let most = largest::<L>(most) + total::<L>(marks);
                codes(self.call, number, std::slice::from_raw_parts(kept, n), most);
            }
        }
    }
}

/// Writes the codes of a row and their factor.
///
/// # Safety
/// The call has this row, which this thread alone writes.
#[inline(always)]
unsafe fn codes(call: &Call<impl Element>, number: usize, row: &[f32], most: f32) {
    let (scale, factor) = quant::factors(call.quant, most);
    // SAFETY: the caller's word.
    let to = unsafe {
        *call.scales.add(number) = scale;
        std::slice::from_raw_parts_mut(call.codes.add(number * row.len()), row.len())
    };
    // Two loops, so that each becomes vectors.
    if call.quant == Quant::I8 {
        for (to, y) in to.iter_mut().zip(row) {
            *to = quant::i8(y * factor);
        }
    } else {
        for (to, y) in to.iter_mut().zip(row) {
            *to = quant::f8e4m3(y * factor);
        }
    }
}
