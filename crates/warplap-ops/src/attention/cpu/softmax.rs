//! Softmax steps over scores held in f32: down columns (lanes are queries) and along a row (lanes are keys).

use warplap_cpu::simd::{Element, Lanes, Task, exp2};

/// Below every score: an all-hidden row keeps it, and -inf minus it is still -inf.
pub(super) const LOWEST: f32 = f32::MIN;

/// One online step over a tile of scores `[keys][width]`, each column one query. Scores come in units of log₂ e and
/// leave as weights relative to the new maximum.
#[derive(Clone, Copy)]
pub(super) struct Columns {
    /// The scores, `keys × width`.
    pub(super) scores: *mut f32,
    /// Keys of the tile.
    pub(super) keys: usize,
    /// Queries: whole vectors.
    pub(super) width: usize,
    /// For each query the last key it sees, counted from the tile's first; only where some key is hidden.
    pub(super) last: Option<*const f32>,
    /// Largest score so far.
    pub(super) most: *mut f32,
    /// Sum of weights so far.
    pub(super) sum: *mut f32,
    /// What earlier weights must be multiplied with (written).
    pub(super) factor: *mut f32,
}

impl Task for Columns {
    type Out = ();

    /// The constructor's contract: `scores` holds keys × width numbers, the others width.
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        // SAFETY: every address lies inside what the contract names.
        unsafe {
            for c in (0..self.width).step_by(L::N) {
                let at = |j: usize| self.scores.add(j * self.width + c);
                if let Some(last) = self.last {
                    let last = L::load(last.add(c));
                    for j in 0..self.keys {
                        // Zero where the key is seen. Twice at least -MAX is -inf elsewhere.
                        let hidden = L::mul(L::min(L::sub(last, L::splat(j as f32)), L::zero()), L::splat(f32::MAX));
                        L::store(at(j), L::add(L::add(L::load(at(j)), hidden), hidden));
                    }
                }
                let old = L::load(self.most.add(c));
                // Four chains: one would wait for the latency of each maximum.
                let mut tops = [old; 4];
                let mut j = 0;
                while j + 4 <= self.keys {
                    for (i, top) in tops.iter_mut().enumerate() {
                        *top = L::max(*top, L::load(at(j + i)));
                    }
                    j += 4;
                }
                while j < self.keys {
                    tops[0] = L::max(tops[0], L::load(at(j)));
                    j += 1;
                }
                let most = L::max(L::max(tops[0], tops[1]), L::max(tops[2], tops[3]));
                let mut sums = [L::zero(); 2];
                let mut j = 0;
                while j + 2 <= self.keys {
                    for (i, sum) in sums.iter_mut().enumerate() {
                        let weight = exp2::<L>(L::sub(L::load(at(j + i)), most));
                        L::store(at(j + i), weight);
                        *sum = L::add(*sum, weight);
                    }
                    j += 2;
                }
                if j < self.keys {
                    let weight = exp2::<L>(L::sub(L::load(at(j)), most));
                    L::store(at(j), weight);
                    sums[0] = L::add(sums[0], weight);
                }
                let factor = exp2::<L>(L::sub(old, most));
                let sum = L::fma(L::load(self.sum.add(c)), factor, L::add(sums[0], sums[1]));
                L::store(self.most.add(c), most);
                L::store(self.sum.add(c), sum);
                L::store(self.factor.add(c), factor);
            }
        }
    }
}

/// The softmax of one row of scores, not yet divided by its sum. Gives the maximum and the sum.
#[derive(Clone, Copy)]
pub(super) struct Row<T> {
    /// The scores; room for `keys` rounded up to whole vectors (the padding becomes zero).
    pub(super) scores: *mut f32,
    /// Keys seen.
    pub(super) keys: usize,
    /// What is added to each score.
    pub(super) mask: Option<*const T>,
    /// What differences of scores are multiplied with before 2^x: log₂ e, or 1 where it is in the scores already.
    pub(super) factor: f32,
}

impl<T: Element> Task for Row<T> {
    type Out = (f32, f32);

    /// The constructor's contract: see the fields.
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) -> (f32, f32) {
        // SAFETY: every address lies inside what the contract names.
        unsafe {
            let padded = self.keys.next_multiple_of(L::N);
            for j in self.keys..padded {
                *self.scores.add(j) = f32::NEG_INFINITY;
            }
            let mut tops = [L::splat(LOWEST); 4];
            for (i, j) in (0..padded).step_by(L::N).enumerate() {
                let mut x = L::load(self.scores.add(j));
                if let Some(mask) = self.mask {
                    let left = self.keys - j;
                    let added =
                        if left >= L::N { T::load::<L>(mask.add(j)) } else { T::load_first::<L>(mask.add(j), left) };
                    x = L::add(x, added);
                    L::store(self.scores.add(j), x);
                }
                tops[i % 4] = L::max(tops[i % 4], x);
            }
            let most = L::largest(L::max(L::max(tops[0], tops[1]), L::max(tops[2], tops[3])));
            let (top, factor) = (L::splat(most), L::splat(self.factor));
            let mut sums = [L::zero(); 2];
            for (i, j) in (0..padded).step_by(L::N).enumerate() {
                let weight = exp2::<L>(L::mul(L::sub(L::load(self.scores.add(j)), top), factor));
                L::store(self.scores.add(j), weight);
                sums[i % 2] = L::add(sums[i % 2], weight);
            }
            (most, L::sum(L::add(sums[0], sums[1])))
        }
    }
}

/// One over a sum of weights; nothing seen gives zeros.
pub(super) fn inverse(sum: f32) -> f32 {
    if sum > 0.0 { 1.0 / sum } else { 0.0 }
}
