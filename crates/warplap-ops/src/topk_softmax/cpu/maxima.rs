//! Maxima: the largest of every block of a row, of which the largest is taken k times.
//!
//! Idea: a row lies in the first cache as f32, with the largest of each block beside it. Who is taken is the first of
//! its block and the block the first of all; then that block alone has its largest found again. Work grows with k by a
//! block and the maxima, not by a list. Wins: many experts to choose. Limits: scratch of one row a thread.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::problem::Problem;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::simd::{Element, Lanes, Task};
use warplap_cpu::{Cpu, Typed};

use super::call::{Call, Chosen};
use crate::row_vectors::{CHAINS, Setting, each, load, shown, space, total, weight, with_row};
use crate::topk_softmax::{TopkSoftmax, TopkSoftmaxProblem};
use crate::typed::for_dtype;

/// The largest of blocks.
pub(super) struct Maxima;

/// Vectors of a block at the most.
const WIDEST: usize = 4;

/// Numbers that a row and its maxima take beyond their own, at the most: a block and a vector of 16 lanes.
const BEYOND: usize = 16 * (WIDEST + 1);

impl Variant<TopkSoftmax, Cpu> for Maxima {
    fn id(&self) -> &str {
        "maxima"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &TopkSoftmaxProblem, _: &Cpu) -> Fit {
        if p.k >= 4 && p.n >= 32 { Fit::HIGH } else { Fit::MEDIUM }
    }

    fn space(&self, p: &TopkSoftmaxProblem, cpu: &Cpu) -> Space {
        let vectors: &[i64] = if p.n >= 128 { &[1, WIDEST as i64] } else { &[1] };
        space(p.work().bytes, cpu).axis(Axis::ints("block", vectors.iter().copied()))
    }

    fn needs(&self, p: &TopkSoftmaxProblem, config: &Config) -> Needs {
        let threads = config.size("threads").unwrap_or(1) as u64;
        Needs { threads, workspace: 8 * threads * p.n, ..Needs::default() }
    }

    fn build(&self, p: &TopkSoftmaxProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        let vectors = config.size("block").unwrap_or(1).clamp(1, WIDEST);
        let workspace = self.needs(p, config).workspace;
        Ok(Box::new(Built { problem: *p, setting: Setting::read(config, cpu)?, vectors, workspace }))
    }
}

struct Built {
    problem: TopkSoftmaxProblem,
    setting: Setting,
    vectors: usize,
    workspace: u64,
}

impl Kernel<Cpu> for Built {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.dtype, T => rows::<T>(self, args))
    }

    fn workspace(&self) -> u64 {
        self.workspace
    }
}

fn rows<T: Element + Typed>(kernel: &Built, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let (p, setting, vectors) = (&kernel.problem, &kernel.setting, kernel.vectors);
    let (call, n) = (Call::<T>::of(p, args)?, p.n as usize);
    setting.each(p.rows as usize, n, |first, end| {
        with_row(2 * n + BEYOND, |room| setting.isa.run(Run { call: &call, room, vectors, first, end }));
    });
    Ok(())
}

/// The largest of whole vectors.
///
/// # Safety
/// The machine has the instruction set of `L`, whose lanes divide the numbers.
#[inline(always)]
unsafe fn most_of<L: Lanes>(numbers: &[f32]) -> f32 {
    // SAFETY: the caller's word.
    unsafe {
        let mut most = L::splat(f32::NEG_INFINITY);
        for at in (0..numbers.len()).step_by(L::N) {
            most = L::max(L::load(numbers.as_ptr().add(at)), most);
        }
        L::largest(most)
    }
}

/// The place of the first number that is equal to one that is there.
#[inline(always)]
fn find(numbers: &[f32], value: f32) -> usize {
    // Whole runs first: without a way out in between a comparison of sixteen is one of vectors.
    let has = |run: &[f32]| run.iter().fold(false, |any, v| any | (*v == value));
    let run = numbers.chunks(16).position(has).unwrap_or(0) * 16;
    run + numbers[run..].iter().position(|v| *v == value).unwrap_or(0)
}

/// Rows of a call, from the first to before the end, and room for one of them and its maxima.
struct Run<'a, T> {
    call: &'a Call<T>,
    room: &'a mut [f32],
    vectors: usize,
    first: usize,
    end: usize,
}

impl<T: Element> Task for Run<'_, T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let (n, k) = (self.call.problem.n as usize, self.call.problem.k as usize);
        let block = self.vectors * L::N;
        let (kept, maxima) = self.room.split_at_mut(n.next_multiple_of(block));
        let blocks = kept.len() / block;
        let maxima = &mut maxima[..blocks.next_multiple_of(L::N)];
        maxima.fill(f32::NEG_INFINITY);
        let mut chosen = Chosen::new();
        for row in self.first..self.end {
            // SAFETY: the call has these rows of n elements, and this task alone writes them; blocks and maxima are
            // whole vectors; the instruction set is the caller's word.
            unsafe {
                let (x, mut check) = (self.call.row(row), L::zero());
                for (kept, (i, most)) in kept.chunks_exact_mut(block).zip(maxima.iter_mut().enumerate()) {
                    for at in (0..block).step_by(L::N) {
                        let lanes = n.saturating_sub(i * block + at).min(L::N);
                        let v = if lanes > 0 { load::<L, T>(x.add(i * block + at), lanes) } else { L::zero() };
                        check = L::add(check, v);
                        L::store(kept.as_mut_ptr().add(at), shown::<L>(v, lanes));
                    }
                    *most = most_of::<L>(kept);
                }
                // NaN passes through sums, and not through comparisons.
                if L::sum(check).is_nan() {
                    self.call.plainly(row);
                    continue;
                }
                let mut sum = 0.0;
                if !self.call.problem.renormalize {
                    let (top, mut parts) = (L::splat(most_of::<L>(maxima)), [L::zero(); CHAINS]);
                    each!(L, kept.len(), |chain, at, _lanes| {
                        let v = L::sub(L::load(kept.as_ptr().add(at)), top);
                        parts[chain] = L::add(parts[chain], weight::<L>(v));
                    });
                    sum = total::<L>(parts);
                }
                let mut count = 0;
                while count < k {
                    let most = most_of::<L>(maxima);
                    if most == f32::NEG_INFINITY {
                        break;
                    }
                    let at = find(&maxima[..blocks], most);
                    let own = &mut kept[at * block..][..block];
                    let place = find(own, most);
                    (chosen.values[count], chosen.places[count]) = (most, (at * block + place) as u32);
                    own[place] = f32::NEG_INFINITY;
                    maxima[at] = most_of::<L>(own);
                    count += 1;
                }
                // Hidden ones are what is left, in their order: who was taken was none of them.
                for place in 0..n {
                    if count == k {
                        break;
                    }
                    if (*x.add(place)).widen() == f32::NEG_INFINITY {
                        (chosen.values[count], chosen.places[count]) = (f32::NEG_INFINITY, place as u32);
                        count += 1;
                    }
                }
                self.call.put::<L>(row, &mut chosen, sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_equal_numbers_is_found() {
        let mut numbers = vec![1f32; 50];
        (numbers[17], numbers[19], numbers[40]) = (2.0, 2.0, 3.0);
        assert_eq!([1.0, 2.0, 3.0].map(|v| find(&numbers, v)), [0, 17, 40]);
        assert_eq!(find(&[-0.0], 0.0), 0);
    }
}
