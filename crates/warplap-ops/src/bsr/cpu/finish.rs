//! What happens to a sum before it is stored: alpha times it, plus beta times the addend, in f32.

use warplap_cpu::simd::{Element, Lanes};

use super::matrix::Shared;
use crate::bsr::BsrProblem;

/// The factors, and where the addend lies.
pub(super) struct Finish<T> {
    alpha: f32,
    beta: f32,
    // Null where nothing is added. It may be C itself: an element is read before it is written, by whoever writes it.
    add: *const T,
}

impl<T> Clone for Finish<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Finish<T> {}

// SAFETY: the addend is only read, and only where this thread writes C.
unsafe impl<T: Sync> Send for Finish<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Finish<T> {}

impl<T> Finish<T> {
    /// Sums are stored as they are.
    pub(super) const PLAIN: Finish<T> = Finish { alpha: 1.0, beta: 0.0, add: std::ptr::null() };

    /// That of a problem; `add` holds m·n elements, as `c` does, and is C itself where there is no other.
    pub(super) fn of(p: &BsrProblem, add: Option<&[T]>, c: Shared<T>) -> Self {
        let add = add.map_or(c.at(0).cast_const(), <[T]>::as_ptr);
        let add = if p.adds() { add } else { std::ptr::null() };
        Finish { alpha: p.alpha.get(), beta: p.beta.get(), add }
    }

    /// The same for C from one element on.
    pub(super) fn from(self, element: usize) -> Self {
        let add = if self.add.is_null() { self.add } else { self.add.wrapping_add(element) };
        Finish { add, ..self }
    }

    fn is_plain(&self) -> bool {
        self.add.is_null() && self.alpha == 1.0
    }
}

impl<T: Element> Finish<T> {
    /// One sum.
    ///
    /// # Safety
    /// C has that element, and nobody else writes it meanwhile.
    #[inline(always)]
    pub(super) unsafe fn one(self, sum: f32, element: usize) -> f32 {
        if self.add.is_null() {
            return self.alpha * sum;
        }
        // SAFETY: the addend is as long as C.
        let add = unsafe { *self.add.add(element) };
        self.alpha * sum + self.beta * add.widen()
    }

    /// A vector of sums, of which `lanes` are elements of C.
    ///
    /// # Safety
    /// As for `one`, for `lanes` elements from that one on.
    #[inline(always)]
    pub(super) unsafe fn vector<L: Lanes>(self, sum: L::V, element: usize, lanes: usize) -> L::V {
        // SAFETY: the caller's word, passed on; lanes past the last are not read.
        unsafe {
            if self.is_plain() {
                return sum;
            }
            let sum = L::mul(L::splat(self.alpha), sum);
            if self.add.is_null() {
                return sum;
            }
            let at = self.add.add(element);
            let add = if lanes < L::N { T::load_first::<L>(at, lanes) } else { T::load::<L>(at) };
            L::fma(L::splat(self.beta), add, sum)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bsr::Bsr;
    use warplap_core::op::Op;

    #[test]
    fn the_addend_is_c_itself_where_no_other_is_given_and_nothing_without_beta() {
        let p = Bsr::parse("m=8,k=8,n=1,bs=8,density=1,alpha=2,beta=-1").unwrap();
        let (other, mut c) = ([10f32; 8], [1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        let c = Shared::new(&mut c);
        let own = Finish::of(&p, None, c);
        // SAFETY: both addends hold eight elements.
        unsafe {
            assert_eq!(own.from(2).one(5.0, 1), 6.0);
            assert_eq!(Finish::of(&p, Some(&other), c).one(5.0, 0), 0.0);
            let alone = Bsr::parse("m=8,k=8,n=1,bs=8,density=1,alpha=2").unwrap();
            assert_eq!(Finish::of(&alone, Some(&[f32::NAN; 8]), c).one(5.0, 0), 10.0);
            assert_eq!(Finish::<f32>::PLAIN.one(5.0, 0), 5.0);
        }
    }
}
