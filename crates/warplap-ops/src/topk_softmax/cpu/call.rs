//! The typed slots of a launch, as all variants take them; who was chosen of a row, and the end that all rows have:
//! weights and indices are written.

use warplap_core::arg::Arg;
use warplap_core::rejection::Rejection;
use warplap_cpu::simd::{Element, Lanes};
use warplap_cpu::{Cpu, Typed};

use crate::row_vectors::weight;
use crate::topk_softmax::{MOST, TopkSoftmaxProblem, order, slot};
use crate::typed;

/// The slots as addresses: several threads write, each its own rows.
#[derive(Clone, Copy)]
pub(super) struct Call<T> {
    x: *const T,
    weights: *mut f32,
    indices: *mut i32,
    pub(super) problem: TopkSoftmaxProblem,
}

// SAFETY: what is read nobody writes, and each thread writes its own rows.
unsafe impl<T: Send + Sync> Send for Call<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Call<T> {}

impl<T: Typed> Call<T> {
    /// The addresses of arguments, which the caller keeps borrowed. The catalog hands out kernels that refuse other
    /// arguments than the signature's: there are as many elements as the problem says.
    pub(super) fn of(p: &TopkSoftmaxProblem, args: &mut [Arg<'_, Cpu>]) -> Result<Self, Rejection> {
        let x = typed::read::<T>(args[slot::X].read()?)?.as_ptr();
        let weights = typed::write::<f32>(args[slot::WEIGHTS].write()?)?.as_mut_ptr();
        let indices = typed::write::<i32>(args[slot::INDICES].write()?)?.as_mut_ptr();
        Ok(Call { x, weights, indices, problem: *p })
    }
}

/// Who was chosen of a row, the first first; what lies behind them does not count.
pub(super) struct Chosen {
    pub(super) values: [f32; MOST],
    pub(super) places: [u32; MOST],
}

impl Chosen {
    /// Nobody.
    pub(super) fn new() -> Self {
        Chosen { values: [0.0; MOST], places: [0; MOST] }
    }
}

impl<T: Element> Call<T> {
    /// The address of a row.
    #[inline(always)]
    pub(super) fn row(&self, row: usize) -> *const T {
        self.x.wrapping_add(row * self.problem.n as usize)
    }

    /// Writes a row's weights and indices. The sum is that of a whole row's exponentials, of its differences
    /// from the first; where weights are divided by their own it is not looked at.
    ///
    /// # Safety
    /// The problem has the row, no other thread writes it, and the machine has the instruction set of `L`.
    #[inline(always)]
    pub(super) unsafe fn put<L: Lanes>(&self, row: usize, chosen: &mut Chosen, sum: f32) {
        const { assert!(MOST.is_multiple_of(L::N)) }
        let (k, values) = (self.problem.k as usize, &mut chosen.values);
        // SAFETY: k is MOST at the most, which vectors divide; outputs hold k for each row.
        unsafe {
            // What earlier rows left beyond would grow from row to row.
            let top = values[0];
            values[k..k.next_multiple_of(L::N)].fill(top);
            let from = L::splat(top);
            for at in (0..k).step_by(L::N) {
                let v = L::sub(L::load(values.as_ptr().add(at)), from);
                L::store(values.as_mut_ptr().add(at), weight::<L>(v));
            }
            let sum = if self.problem.renormalize { values[..k].iter().sum() } else { sum };
            for (i, (value, place)) in values.iter().zip(&chosen.places).enumerate().take(k) {
                *self.weights.add(row * k + i) = value / sum;
                *self.indices.add(row * k + i) = *place as i32;
            }
        }
    }

    /// Does a row by plain loops, whatever is in it.
    ///
    /// # Safety
    /// The problem has the row, and no other thread writes it.
    #[inline(never)]
    pub(super) unsafe fn plainly(&self, row: usize) {
        let (n, k) = (self.problem.n as usize, self.problem.k as usize);
        // SAFETY: the caller's word; a row has n elements.
        let x: Vec<f32> = (0..n).map(|i| unsafe { *self.row(row).add(i) }.widen()).collect();
        let places = order::first(&x, k);
        let share = |place: usize| (x[place] - x[places[0]]).exp();
        let sum: f32 = match self.problem.renormalize {
            true => places.iter().map(|place| share(*place)).sum(),
            // In short chains: the error of a sum grows with their length.
            false => (0..n).step_by(CHAIN).map(|i| (i..n.min(i + CHAIN)).map(share).sum::<f32>()).sum(),
        };
        for (i, &place) in places.iter().enumerate() {
            // SAFETY: the caller's word; outputs hold k for each row.
            unsafe {
                *self.weights.add(row * k + i) = share(place) / sum;
                *self.indices.add(row * k + i) = place as i32;
            }
        }
    }
}

/// Terms that are summed one after another.
const CHAIN: usize = 128;
