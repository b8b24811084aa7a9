//! One row of a call in vectors: loads of x + residual, stores of the sum and of y.

use warplap_cpu::simd::{Element, Lanes};

use super::call::Call;
use crate::row_vectors::{load, store};

/// The addresses of one row.
#[derive(Clone, Copy)]
pub(super) struct Row<T> {
    x: *const T,
    residual: *const T,
    weight: *const T,
    bias: *const T,
    y: *mut T,
    sum: *mut T,
    before: *const T,
    factors: *const f32,
}

impl<T: Element> Row<T> {
    /// A row of a call.
    #[inline(always)]
    pub(super) fn of(call: &Call<T>, row: usize) -> Self {
        let at = row * call.n;
        let Call { x, residual, weight, bias, y, sum, before, .. } = *call;
        // What is null stays so.
        let residual = if residual.is_null() { residual } else { residual.wrapping_add(at) };
        let sum = if sum.is_null() { sum } else { sum.wrapping_add(at) };
        let y = if y.is_null() { y } else { y.wrapping_add(at) };
        let (x, factors) = (x.wrapping_add(at), std::ptr::null());
        Row { x, residual, weight, bias, y, sum, before, factors }
    }

    /// This row, whose elements are dropped or grown by these factors, n and a vector more.
    #[inline(always)]
    pub(super) fn dropped(self, factors: *const f32) -> Self {
        Row { factors, ..self }
    }

    /// The sums of `count` elements from one on, zero in the other lanes.
    ///
    /// # Safety
    /// The row has them, and the machine the instruction set of `L`.
    #[inline(always)]
    pub(super) unsafe fn sums<L: Lanes>(&self, at: usize, count: usize) -> L::V {
        // SAFETY: the caller's word.
        unsafe {
            let mut x = load::<L, T>(self.x.add(at), count);
            if !self.before.is_null() {
                x = L::add(x, load::<L, T>(self.before.add(at), count));
            }
            if !self.factors.is_null() {
                x = L::mul(x, L::load(self.factors.add(at)));
            }
            if self.residual.is_null() { x } else { L::add(x, load::<L, T>(self.residual.add(at), count)) }
        }
    }

    /// Writes sums, where there is a place for them.
    ///
    /// # Safety
    /// As for `sums`.
    #[inline(always)]
    pub(super) unsafe fn put_sums<L: Lanes>(&self, at: usize, count: usize, v: L::V) {
        if !self.sum.is_null() {
            // SAFETY: the caller's word.
            unsafe { store::<L, T>(self.sum.add(at), count, v) }
        }
    }

    /// y of sums: `(v - mean) * inverse * weight + bias`.
    ///
    /// # Safety
    /// As for `sums`.
    #[inline(always)]
    pub(super) unsafe fn normed<L: Lanes>(&self, at: usize, count: usize, v: L::V, mean: L::V, inverse: L::V) -> L::V {
        // SAFETY: the caller's word; weight and bias are null or hold n elements.
        unsafe {
            let mut y = L::mul(L::sub(v, mean), inverse);
            if !self.weight.is_null() {
                y = L::mul(y, load::<L, T>(self.weight.add(at), count));
            }
            if !self.bias.is_null() {
                y = L::add(y, load::<L, T>(self.bias.add(at), count));
            }
            y
        }
    }

    /// Writes y of sums.
    ///
    /// # Safety
    /// As for `sums`; y is not written as codes.
    #[inline(always)]
    pub(super) unsafe fn put<L: Lanes>(&self, at: usize, count: usize, v: L::V, mean: L::V, inverse: L::V) {
        // SAFETY: the caller's word.
        unsafe { store::<L, T>(self.y.add(at), count, self.normed::<L>(at, count, v, mean, inverse)) }
    }
}
