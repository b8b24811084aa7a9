//! What happens to a sum before it is stored: alpha times it, plus beta times the addend, in f32. The addend is as large
//! as C, or a bias: one element for each of its rows.

use warplap_cpu::simd::{Element, Lanes};

use super::matrix::Shared;
use crate::bsr::BsrProblem;
use crate::gemm::Layout;

/// The factors, and where the addend lies.
pub(super) struct Finish<T> {
    alpha: f32,
    beta: f32,
    // Null where nothing is added. It may be C itself: an element is read before it is written, by whoever writes it.
    add: *const T,
    // Where C begins for whoever asks, and the elements from one row of C to the next where the addend is a bias.
    start: usize,
    bias: Option<Bias>,
}

/// Lanes of the widest vector.
const WIDEST: usize = 16;

/// How the elements of C lie over those of a bias.
#[derive(Clone, Copy, PartialEq)]
enum Bias {
    /// So many in a row, which share one.
    Shared(usize),
    /// So many in a column, one for each.
    Each(usize),
}

impl Bias {
    fn at(self, element: usize) -> usize {
        match self {
            Bias::Shared(columns) => element / columns,
            Bias::Each(rows) => element % rows,
        }
    }
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
    pub(super) const PLAIN: Finish<T> = Finish { alpha: 1.0, beta: 0.0, add: std::ptr::null(), start: 0, bias: None };

    /// That of a problem; `add` holds m·n elements, as `c` does, or m where it is a bias, and is C itself where there is no
    /// other.
    pub(super) fn of(p: &BsrProblem, add: Option<&[T]>, c: Shared<T>) -> Self {
        let add = add.map_or(c.at(0).cast_const(), <[T]>::as_ptr);
        let add = if p.adds() { add } else { std::ptr::null() };
        let bias = match p.c {
            Layout::Row => Bias::Shared(p.n as usize),
            Layout::Col => Bias::Each(p.m as usize),
        };
        Finish { alpha: p.alpha.get(), beta: p.beta.get(), add, start: 0, bias: p.bias.then_some(bias) }
    }

    /// The same for C from one element on.
    pub(super) fn from(self, element: usize) -> Self {
        Finish { start: self.start + element, ..self }
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
        let element = self.start + element;
        // SAFETY: the addend is as long as C, or has an element for each of its rows.
        let add = unsafe { *self.add.add(self.bias.map_or(element, |bias| bias.at(element))) };
        self.alpha * sum + self.beta * add.widen()
    }

    /// A vector of sums, of which `lanes` are elements of C.
    ///
    /// # Safety
    /// As for `one`, for `lanes` elements from that one on, which are of one row of C where that is row-major.
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
            let element = self.start + element;
            match self.bias {
                Some(Bias::Shared(columns)) => {
                    let shared = (*self.add.add(element / columns)).widen();
                    return L::fma(L::splat(self.beta), L::splat(shared), sum);
                }
                // They may go on in the next column.
                Some(Bias::Each(rows)) => {
                    let mut each = [0f32; WIDEST];
                    let some = each.iter_mut().take(lanes).enumerate();
                    some.for_each(|(i, x)| *x = (*self.add.add((element + i) % rows)).widen());
                    return L::fma(L::splat(self.beta), f32::load::<L>(each.as_ptr()), sum);
                }
                None => {}
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
            let ramp = [1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
            for (order, second) in [("row", 7.0), ("col", 9.0)] {
                let p = Bsr::parse(&format!("m=8,k=8,n=3,bs=8,density=1,bias=true,c={order}")).unwrap();
                assert_eq!(Finish::of(&p, Some(&ramp), c).from(2).one(5.0, 1), second);
            }
        }
    }
}
