//! The typed slots of a launch, as addresses.

use warplap_core::arg::Arg;
use warplap_core::rejection::Rejection;
use warplap_cpu::{Cpu, Typed};

use crate::gated::{GatedProblem, slot};
use crate::typed;

/// The slots as addresses: several threads write y, each its own part. b is null where the problem has none.
pub(super) struct Call<T> {
    a: *const T,
    b: *const T,
    pub(super) y: *mut T,
    pub(super) problem: GatedProblem,
}

// SAFETY: what is read nobody writes, and each thread writes its own part of y.
unsafe impl<T: Send + Sync> Sync for Call<T> {}

impl<T: Typed> Call<T> {
    /// The addresses of arguments, which the caller keeps borrowed. The catalog hands out kernels that refuse other
    /// arguments than the signature's: where there is an address there are as many elements as the problem says.
    pub(super) fn of(p: &GatedProblem, args: &mut [Arg<'_, Cpu>]) -> Result<Self, Rejection> {
        let a = typed::read::<T>(args[slot::A].read()?)?.as_ptr();
        let b = match args[slot::B].view() {
            Some(view) => typed::read::<T>(view)?.as_ptr(),
            None => std::ptr::null(),
        };
        let y = typed::write::<T>(args[slot::Y].write()?)?.as_mut_ptr();
        Ok(Call { a, b, y, problem: *p })
    }
}

impl<T> Call<T> {
    /// Where a row begins, in a, in b (null where there is none) and in y.
    #[inline(always)]
    pub(super) fn row(&self, row: usize) -> (*const T, *const T, *mut T) {
        let p = &self.problem;
        let b = if self.b.is_null() { self.b } else { self.b.wrapping_add(row * p.ldb as usize) };
        (self.a.wrapping_add(row * p.lda as usize), b, self.y.wrapping_add(row * p.n as usize))
    }
}
