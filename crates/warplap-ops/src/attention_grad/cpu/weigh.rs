//! Scores and gradients of weights come in, a row of keys at a time; weights and gradients of scores go out in their place.

use warplap_cpu::simd::{Element, Lanes, Task, exp};

use crate::attention::Sight;

/// Rows of one block of scores.
pub(super) struct Weigh<'a, T> {
    /// Scores, which become weights, row by row.
    pub(super) scores: &'a mut [f32],
    /// Gradients of weights, which become those of scores.
    pub(super) slopes: &'a mut [f32],
    /// Numbers of a row.
    pub(super) width: usize,
    /// The first row's query, and the first number's key.
    pub(super) first: [usize; 2],
    /// Log-sum-exps and deltas, from the first row on.
    pub(super) lse: &'a [f32],
    pub(super) deltas: &'a [f32],
    /// What scores are multiplied with.
    pub(super) scale: f32,
    /// What queries see.
    pub(super) sight: Sight,
    /// What is added to the first row's, from the first key on, and a row of so many behind it for each further query;
    /// null where nothing is.
    pub(super) mask: (*const T, usize),
}

impl<T: Element> Task for Weigh<'_, T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let [query, key] = self.first;
        let rows = self.scores.chunks_exact_mut(self.width).zip(self.slopes.chunks_exact_mut(self.width));
        for (i, (scores, slopes)) in rows.enumerate() {
            let (lse, delta) = (self.lse[i], self.deltas[i]);
            let hidden = lse == f32::NEG_INFINITY;
            let keys = self.sight.of_query(query + i);
            let place = |at: usize| at.saturating_sub(key).min(self.width);
            let (begin, seen) = if hidden { (0, 0) } else { (place(keys.start), place(keys.end)) };
            for row in [&mut *scores, &mut *slopes] {
                row[..begin.min(seen)].fill(0.0);
                row[seen..].fill(0.0);
            }
            // SAFETY: both rows hold `width` numbers and the mask a row for each query from `key` on; the instruction
            // set is the caller's word.
            unsafe {
                let line = match self.mask.0.is_null() {
                    true => self.mask.0,
                    false => self.mask.0.add(i * self.mask.1),
                };
                let (scale, lse, delta) = (L::splat(self.scale), L::splat(-lse), L::splat(delta));
                let mut at = begin;
                while at < seen {
                    let n = L::N.min(seen - at);
                    let (s, g) = (scores.as_mut_ptr().add(at), slopes.as_mut_ptr().add(at));
                    let whole = n == L::N;
                    let load = |p: *const f32| if whole { L::load(p) } else { L::load_first(p, n) };
                    let mut exponent = L::fma(load(s), scale, lse);
                    if !line.is_null() {
                        let m = line.add(at);
                        let added = if whole { T::load::<L>(m) } else { T::load_first::<L>(m, n) };
                        exponent = L::add(exponent, added);
                    }
                    let weight = exp::<L>(exponent);
                    let slope = L::mul(weight, L::sub(load(g), delta));
                    match whole {
                        true => {
                            L::store(s, weight);
                            L::store(g, slope);
                        }
                        false => {
                            L::store_first(s, weight, n);
                            L::store_first(g, slope, n);
                        }
                    }
                    at += L::N;
                }
            }
        }
    }
}
