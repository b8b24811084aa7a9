//! One row in vectors: loads of x + residual, stores of the sum and of y. Tails are vectors of which the first lanes
//! count.

use warplap_cpu::simd::{Element, Lanes};

use super::call::Call;

/// Sums that are kept side by side: a chain of additions is as slow as its latency.
pub(super) const CHAINS: usize = 4;

/// The addresses of one row.
#[derive(Clone, Copy)]
pub(super) struct Row<T> {
    x: *const T,
    residual: *const T,
    weight: *const T,
    bias: *const T,
    y: *mut T,
    sum: *mut T,
}

impl<T: Element> Row<T> {
    /// A row of a call.
    #[inline(always)]
    pub(super) fn of(call: &Call<T>, row: usize) -> Self {
        let at = row * call.n;
        let Call { x, residual, weight, bias, y, sum, .. } = *call;
        // What is null stays so.
        let residual = if residual.is_null() { residual } else { residual.wrapping_add(at) };
        let sum = if sum.is_null() { sum } else { sum.wrapping_add(at) };
        Row { x: x.wrapping_add(at), residual, weight, bias, y: y.wrapping_add(at), sum }
    }

    /// The sums of `count` elements from one on, zero in the other lanes.
    ///
    /// # Safety
    /// The row has them, and the machine the instruction set of `L`.
    #[inline(always)]
    pub(super) unsafe fn sums<L: Lanes>(&self, at: usize, count: usize) -> L::V {
        // SAFETY: the caller's word.
        unsafe {
            let x = load::<L, T>(self.x.add(at), count);
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

    /// Writes y of sums: `(v - mean) * inverse * weight + bias`.
    ///
    /// # Safety
    /// As for `sums`.
    #[inline(always)]
    pub(super) unsafe fn put<L: Lanes>(&self, at: usize, count: usize, v: L::V, mean: L::V, inverse: L::V) {
        // SAFETY: the caller's word; weight and bias are null or hold n elements.
        unsafe {
            let mut y = L::mul(L::sub(v, mean), inverse);
            if !self.weight.is_null() {
                y = L::mul(y, load::<L, T>(self.weight.add(at), count));
            }
            if !self.bias.is_null() {
                y = L::add(y, load::<L, T>(self.bias.add(at), count));
            }
            store::<L, T>(self.y.add(at), count, y);
        }
    }
}

/// # Safety
/// As for `Element::load` of `count` elements.
#[inline(always)]
unsafe fn load<L: Lanes, T: Element>(p: *const T, count: usize) -> L::V {
    // SAFETY: the caller's word.
    unsafe { if count >= L::N { T::load::<L>(p) } else { T::load_first::<L>(p, count) } }
}

/// # Safety
/// As for `Element::store` of `count` elements.
#[inline(always)]
unsafe fn store<L: Lanes, T: Element>(p: *mut T, count: usize, v: L::V) {
    // SAFETY: the caller's word.
    unsafe { if count >= L::N { T::store::<L>(p, v) } else { T::store_first::<L>(p, v, count) } }
}

/// A vector with zero in the lanes that do not count.
///
/// # Safety
/// The machine has the instruction set of `L`.
#[inline(always)]
pub(super) unsafe fn counted<L: Lanes>(v: L::V, count: usize) -> L::V {
    const ONES: [f32; 64] = [1.0; 64];
    // SAFETY: no vector has more than 64 lanes.
    unsafe { if count < L::N { L::mul(v, L::load_first(ONES.as_ptr(), count)) } else { v } }
}

/// Runs a body for every vector of a row of `n`: which chain it is for, where it begins, how many lanes count. A macro,
/// since only what is sure to be inlined is compiled with the instruction set's features.
macro_rules! each {
    ($L:ident, $n:expr, |$chain:pat_param, $at:ident, $count:ident| $body:expr) => {{
        let (n, step, mut from) = ($n, CHAINS * $L::N, 0);
        while from + step <= n {
            for chain in 0..CHAINS {
                let ($chain, $at, $count) = (chain, from + chain * $L::N, $L::N);
                $body;
            }
            from += step;
        }
        while from < n {
            let ($chain, $at, $count) = (0, from, $L::N.min(n - from));
            $body;
            from += $L::N;
        }
    }};
}
pub(super) use each;

/// The sum of all lanes of all chains.
///
/// # Safety
/// The machine has the instruction set of `L`.
#[inline(always)]
pub(super) unsafe fn total<L: Lanes>(chains: [L::V; CHAINS]) -> f32 {
    // SAFETY: the caller's word.
    unsafe { L::sum(L::add(L::add(chains[0], chains[1]), L::add(chains[2], chains[3]))) }
}
