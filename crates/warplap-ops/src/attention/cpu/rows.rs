//! Rows in and out: widened to f32, turned into columns, scaled and rounded back.

use warplap_cpu::simd::{Element, Isa, Lanes, Task};

/// Copies one row of `width` elements to f32, times a factor, and fills with zeros up to `padded`.
#[derive(Clone, Copy)]
pub(super) struct Widen<T> {
    /// The row.
    pub(super) from: *const T,
    /// From one row to the next.
    pub(super) from_row: usize,
    /// Rows.
    pub(super) rows: usize,
    /// Elements of a row.
    pub(super) width: usize,
    /// What each is multiplied with.
    pub(super) factor: f32,
    /// Where they go.
    pub(super) to: *mut f32,
    /// Numbers of one row there, a whole number of vectors not below `width`.
    pub(super) padded: usize,
}

impl<T: Element> Task for Widen<T> {
    type Out = ();

    /// The constructor's contract: see the fields.
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        // SAFETY: rows × width elements are read, rows × padded written.
        unsafe {
            let factor = L::splat(self.factor);
            for r in 0..self.rows {
                let (from, to) = (self.from.add(r * self.from_row), self.to.add(r * self.padded));
                for x in (0..self.padded).step_by(L::N) {
                    let v = if x + L::N <= self.width {
                        T::load::<L>(from.add(x))
                    } else if x < self.width {
                        T::load_first::<L>(from.add(x), self.width - x)
                    } else {
                        L::zero()
                    };
                    L::store(to.add(x), L::mul(v, factor));
                }
            }
        }
    }
}

/// Turns a block of f32 rows into columns: `to[c][r] = from[r][c]`. Rows and columns are whole numbers of vectors.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    /// The block.
    pub(super) from: *const f32,
    /// From one row to the next.
    pub(super) from_row: usize,
    /// Rows of the block.
    pub(super) rows: usize,
    /// Columns of the block.
    pub(super) columns: usize,
    /// Where it goes.
    pub(super) to: *mut f32,
    /// From one row there to the next.
    pub(super) to_row: usize,
}

impl Task for Turn {
    type Out = ();

    /// The constructor's contract: see the fields.
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        // SAFETY: rows × columns are read, columns × rows written; N never exceeds 16.
        unsafe {
            let mut block = [L::zero(); 16];
            for r in (0..self.rows).step_by(L::N) {
                for c in (0..self.columns).step_by(L::N) {
                    for (i, v) in block[..L::N].iter_mut().enumerate() {
                        *v = L::load(self.from.add((r + i) * self.from_row + c));
                    }
                    L::transpose(block.as_mut_ptr());
                    for (i, v) in block[..L::N].iter().enumerate() {
                        L::store(self.to.add((c + i) * self.to_row + r), *v);
                    }
                }
            }
        }
    }
}

/// Writes one row of `width` sums, times a factor, rounded to the output's type.
#[derive(Clone, Copy)]
pub(super) struct Narrow<T> {
    /// The sums.
    pub(super) from: *const f32,
    /// How many.
    pub(super) width: usize,
    /// What each is multiplied with.
    pub(super) factor: f32,
    /// Where they go.
    pub(super) to: *mut T,
}

impl<T: Element> Task for Narrow<T> {
    type Out = ();

    /// The constructor's contract: see the fields.
    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        // SAFETY: width numbers are read and written.
        unsafe {
            let factor = L::splat(self.factor);
            let mut x = 0;
            while x + L::N <= self.width {
                T::store::<L>(self.to.add(x), L::mul(L::load(self.from.add(x)), factor));
                x += L::N;
            }
            if x < self.width {
                let v = L::mul(L::load_first(self.from.add(x), self.width - x), factor);
                T::store_first::<L>(self.to.add(x), v, self.width - x);
            }
        }
    }
}

/// A width rounded up to whole vectors.
pub(super) fn padded(isa: Isa, width: usize) -> usize {
    width.next_multiple_of(isa.lanes())
}
