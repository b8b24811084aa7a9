//! List: a sorted list of the k largest so far; elements are compared with the least of it, blocks of them by their
//! largest.
//!
//! Idea: once the list is full few elements get into it, and most blocks of several vectors are passed by after one
//! comparison; x is read once. Wins: few experts to choose, of few or of very many. Limits: a long list is moved about
//! for every element that gets in.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::problem::Problem;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::simd::{Element, Lanes, Task};
use warplap_cpu::{Cpu, Typed};

use super::call::{Call, Chosen};
use crate::row_vectors::{CHAINS, Setting, each, load, shown, space, total, weight};
use crate::topk_softmax::{TopkSoftmax, TopkSoftmaxProblem};
use crate::typed::for_dtype;

/// A sorted list.
pub(super) struct List;

/// Elements of a block at the most: as many vectors of the widest kind as there are chains.
const BLOCK: usize = 16 * CHAINS;

impl Variant<TopkSoftmax, Cpu> for List {
    fn id(&self) -> &str {
        "list"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &TopkSoftmaxProblem, _: &Cpu) -> Fit {
        if p.k <= 16 { Fit::HIGH } else { Fit::MEDIUM }
    }

    fn space(&self, p: &TopkSoftmaxProblem, cpu: &Cpu) -> Space {
        space(p.work().bytes, cpu)
    }

    fn needs(&self, _: &TopkSoftmaxProblem, config: &Config) -> Needs {
        Needs { threads: config.size("threads").unwrap_or(1) as u64, ..Needs::default() }
    }

    fn build(&self, p: &TopkSoftmaxProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok(Box::new(Built { problem: *p, setting: Setting::read(config, cpu)? }))
    }
}

struct Built {
    problem: TopkSoftmaxProblem,
    setting: Setting,
}

impl Kernel<Cpu> for Built {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.dtype, T => rows::<T>(&self.problem, &self.setting, args))
    }
}

fn rows<T: Element + Typed>(
    p: &TopkSoftmaxProblem,
    setting: &Setting,
    args: &mut [Arg<'_, Cpu>],
) -> Result<(), Rejection> {
    let call = Call::<T>::of(p, args)?;
    setting.each(p.rows as usize, p.n as usize, |first, end| setting.isa.run(Run { call: &call, first, end }));
    Ok(())
}

/// Puts an element into a list of so many, of at most k, behind those that are as large; it is larger than the last of
/// a list that is full. Gives how many there are then.
#[inline(always)]
fn insert(chosen: &mut Chosen, count: usize, k: usize, value: f32, place: usize) -> usize {
    let mut at = count.min(k - 1);
    while at > 0 && chosen.values[at - 1] < value {
        chosen.values[at] = chosen.values[at - 1];
        chosen.places[at] = chosen.places[at - 1];
        at -= 1;
    }
    (chosen.values[at], chosen.places[at]) = (value, place as u32);
    (count + 1).min(k)
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
        let (n, k) = (self.call.problem.n as usize, self.call.problem.k as usize);
        let (mut chosen, mut block) = (Chosen::new(), [0f32; BLOCK]);
        for row in self.first..self.end {
            // SAFETY: the call has these rows of n elements, and this task alone writes them; a block holds CHAINS
            // vectors; the instruction set is the caller's word.
            unsafe {
                let x = self.call.row(row);
                let (mut count, mut least, mut check) = (0, f32::NEG_INFINITY, L::zero());
                for from in (0..n).step_by(CHAINS * L::N) {
                    let len = (CHAINS * L::N).min(n - from);
                    let mut most = L::splat(f32::NEG_INFINITY);
                    for at in (0..len).step_by(L::N) {
                        let lanes = L::N.min(len - at);
                        let v = load::<L, T>(x.add(from + at), lanes);
                        check = L::add(check, v);
                        most = L::max(shown::<L>(v, lanes), most);
                        L::store(block.as_mut_ptr().add(at), v);
                    }
                    if count == k && L::largest(most) <= least {
                        continue;
                    }
                    for (i, v) in block[..len].iter().enumerate() {
                        if count < k || *v > least {
                            count = insert(&mut chosen, count, k, *v, from + i);
                            least = if count == k { chosen.values[k - 1] } else { f32::NEG_INFINITY };
                        }
                    }
                }
                // NaN passes through sums, and not through comparisons.
                if L::sum(check).is_nan() {
                    self.call.plainly(row);
                    continue;
                }
                let mut sum = 0.0;
                if !self.call.problem.renormalize {
                    let (top, mut parts) = (L::splat(chosen.values[0]), [L::zero(); CHAINS]);
                    each!(L, n, |chain, at, lanes| {
                        let v = shown::<L>(load::<L, T>(x.add(at), lanes), lanes);
                        parts[chain] = L::add(parts[chain], weight::<L>(L::sub(v, top)));
                    });
                    sum = total::<L>(parts);
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
    fn a_list_stays_sorted_and_equal_ones_stay_in_their_order() {
        let (mut chosen, mut count) = (Chosen::new(), 0);
        for (place, value) in [1.0, 3.0, 1.0, 2.0, 3.0, 2.0].into_iter().enumerate() {
            if count < 4 || value > chosen.values[3] {
                count = insert(&mut chosen, count, 4, value, place);
            }
        }
        assert_eq!(
            (count, &chosen.values[..4], &chosen.places[..4]),
            (4, &[3.0, 3.0, 2.0, 2.0][..], &[1, 4, 3, 5][..])
        );
    }
}
