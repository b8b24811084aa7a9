//! The typed slots of a launch, as the vectorised variants take them, and the scores of one row in vectors.

use warplap_core::arg::Arg;
use warplap_core::rejection::Rejection;
use warplap_cpu::simd::{Element, Lanes};
use warplap_cpu::{Cpu, Typed};

use crate::row_vectors::load;
use crate::softmax::{SoftmaxProblem, slot};
use crate::typed;

/// The slots as addresses: several threads write y, each its own rows. What the problem does not have is null.
#[derive(Clone, Copy)]
pub(super) struct Call<T> {
    x: *const T,
    mask: *const T,
    pub(super) y: *mut T,
    pub(super) problem: SoftmaxProblem,
}

// SAFETY: what is read nobody writes, and each thread writes its own rows of y.
unsafe impl<T: Send + Sync> Send for Call<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Call<T> {}

impl<T: Typed> Call<T> {
    /// The addresses of arguments, which the caller keeps borrowed. The catalog hands out kernels that refuse other
    /// arguments than the signature's: where there is an address there are as many elements as the problem says.
    pub(super) fn of(p: &SoftmaxProblem, args: &mut [Arg<'_, Cpu>]) -> Result<Self, Rejection> {
        let x = typed::read::<T>(args[slot::X].read()?)?.as_ptr();
        let mask = match args[slot::MASK].view() {
            Some(view) => typed::read::<T>(view)?.as_ptr(),
            None => std::ptr::null(),
        };
        let y = typed::write::<T>(args[slot::Y].write()?)?.as_mut_ptr();
        Ok(Call { x, mask, y, problem: *p })
    }
}

/// The addresses of one row.
#[derive(Clone, Copy)]
pub(super) struct Row<T> {
    x: *const T,
    mask: *const T,
    /// Where the softmax goes.
    pub(super) y: *mut T,
    scale: f32,
}

impl<T: Element> Row<T> {
    /// A row of a call.
    #[inline(always)]
    pub(super) fn of(call: &Call<T>, row: usize) -> Self {
        let (p, n) = (&call.problem, call.problem.n as usize);
        let mask = match call.mask.is_null() {
            true => call.mask,
            false => call.mask.wrapping_add(p.mask_row(row as u64) as usize * n),
        };
        Row { x: call.x.wrapping_add(row * n), mask, y: call.y.wrapping_add(row * n), scale: p.scale() }
    }

    /// `scale · x + mask` of `count` elements from one on; what the other lanes hold is for the caller to leave out.
    ///
    /// # Safety
    /// The row has them, and the machine the instruction set of `L`.
    #[inline(always)]
    pub(super) unsafe fn scores<L: Lanes>(&self, at: usize, count: usize) -> L::V {
        // SAFETY: the caller's word.
        unsafe {
            let (x, scale) = (load::<L, T>(self.x.add(at), count), L::splat(self.scale));
            if self.mask.is_null() {
                L::mul(x, scale)
            } else {
                L::fma(x, scale, load::<L, T>(self.mask.add(at), count))
            }
        }
    }
}
