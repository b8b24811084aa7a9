//! The epilogue: bias, activation and what is joined, on sums in f32 before they are rounded, or on elements that were
//! stored already.
//!
//! Loops hand over a tile while it is in the nearest cache; what is done to it is written once for every instruction
//! set.

use warplap_cpu::simd::{Element, Isa, Lanes, Task};

use super::activate::activate;
use crate::gemm::{Activation, Join};

/// What is done to a product before it is stored.
#[derive(Clone, Copy)]
pub(crate) struct Epilogue<'a, T> {
    /// One element for each column of C.
    pub bias: Option<&'a [T]>,
    /// What is done then.
    pub act: Activation,
    /// What the product is joined with last.
    pub joined: Option<Joined<'a, T>>,
}

/// A matrix that lies as C does.
#[derive(Clone, Copy)]
pub(crate) struct Joined<'a, T> {
    /// Its elements.
    pub elements: &'a [T],
    /// Elements from one row to the next.
    pub row: usize,
    /// How an element is taken in.
    pub how: Join,
}

impl<T> Joined<'_, T> {
    /// The element of a part's first row and column of C. Bounds are checked here, once for the whole part.
    fn at<E>(&self, part: &Part<E>) -> *const T {
        let (rows, columns) = if part.turned { (part.columns, part.rows) } else { (part.rows, part.columns) };
        if rows == 0 || columns == 0 {
            return self.elements.as_ptr();
        }
        let first = part.top * self.row + part.first;
        self.elements[first..first + (rows - 1) * self.row + columns].as_ptr()
    }
}

impl<T: 'static> Epilogue<'_, T> {
    /// Nothing.
    pub(crate) const NONE: Epilogue<'static, T> = Epilogue { bias: None, act: Activation::None, joined: None };

    /// Whether nothing is done.
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.bias.is_none() && self.act == Activation::None && self.joined.is_none()
    }
}

impl<T: Element> Epilogue<'_, T> {
    /// Finishes rows of C from `top` and the first column on, each `row` elements behind the last.
    pub(crate) fn finish<E: Element>(&self, isa: Isa, part: &mut [E], top: usize, row: usize, columns: usize) {
        let rows = if part.len() < columns || columns == 0 { 0 } else { (part.len() - columns) / row.max(1) + 1 };
        if !self.is_none() {
            let at = part.as_mut_ptr();
            // SAFETY: the part holds so many rows, says the line above.
            unsafe { self.run(isa, Part { at, row, rows, columns, top, first: 0, turned: false }) };
        }
    }

    /// Finishes a part of C.
    ///
    /// # Safety
    /// The part spans what its numbers say, and nobody else touches it.
    #[inline]
    pub(crate) unsafe fn run<E: Element>(&self, isa: Isa, part: Part<E>) {
        if !self.is_none() {
            let (first, count) = (part.first, if part.turned { part.rows } else { part.columns });
            // Bounds are checked here, once for the whole part.
            let bias = self.bias.map_or(std::ptr::null(), |bias| bias[first..first + count].as_ptr());
            let (other, other_row, join) = self
                .joined
                .map_or((std::ptr::null(), 0, Join::None), |joined| (joined.at(&part), joined.row, joined.how));
            isa.run(Finish { part, bias, act: self.act, other, other_row, join });
        }
    }
}

/// A part of C, or of the sums that become one.
#[derive(Clone, Copy)]
pub(crate) struct Part<E> {
    /// Its first element.
    pub at: *mut E,
    /// Elements from one row to the next.
    pub row: usize,
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// The row of C that it begins with.
    pub top: usize,
    /// The column of C that it begins with.
    pub first: usize,
    /// Whether its rows are columns of C.
    pub turned: bool,
}

struct Finish<E, T> {
    part: Part<E>,
    /// That of the part's first column of C on; null where there is none.
    bias: *const T,
    act: Activation,
    /// What is joined, at the part's first row and column of C.
    other: *const T,
    other_row: usize,
    join: Join,
}

impl<E, T: Element> Finish<E, T> {
    /// What is joined with the next elements of a row of the part.
    ///
    /// # Safety
    /// The part holds so many from (i, j) on, and the machine has the instruction set of `L`.
    #[inline(always)]
    unsafe fn joined<L: Lanes>(&self, i: usize, j: usize, count: usize) -> L::V {
        // SAFETY: what is joined was found to be as large as the part.
        unsafe {
            if !self.part.turned {
                let from = self.other.add(i * self.other_row + j);
                return if count >= L::N { T::load::<L>(from) } else { T::load_first::<L>(from, count) };
            }
            let mut held = [0f32; MOST_LANES];
            for (x, to) in held.iter_mut().enumerate().take(count.min(L::N)) {
                *to = (*self.other.add((j + x) * self.other_row + i)).widen();
            }
            f32::load::<L>(held.as_ptr())
        }
    }
}

/// Lanes of the widest instruction set.
const MOST_LANES: usize = 16;

impl<E: Element, T: Element> Task for Finish<E, T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<L: Lanes>(self) {
        let Part { at, row, rows, columns, turned, .. } = self.part;
        for i in 0..rows {
            for j in (0..columns).step_by(L::N) {
                let left = columns - j;
                // SAFETY: the caller of `run` promised the part, and its bias was found to be as long.
                unsafe {
                    let to = at.add(i * row + j);
                    let mut x = if left >= L::N { E::load::<L>(to) } else { E::load_first::<L>(to, left) };
                    if !self.bias.is_null() {
                        let bias = if turned {
                            L::splat((*self.bias.add(i)).widen())
                        } else if left >= L::N {
                            T::load::<L>(self.bias.add(j))
                        } else {
                            T::load_first::<L>(self.bias.add(j), left)
                        };
                        x = L::add(x, bias);
                    }
                    x = activate::<L>(self.act, x);
                    x = match self.join {
                        Join::None => x,
                        Join::Add => L::add(x, self.joined::<L>(i, j, left)),
                        Join::Mul => L::mul(x, self.joined::<L>(i, j, left)),
                    };
                    if left >= L::N { E::store::<L>(to, x) } else { E::store_first::<L>(to, x, left) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_activates_as_double_precision_does() {
        for isa in Isa::available() {
            for act in Activation::ALL {
                let x: Vec<f32> = (0..4001).map(|i| (i as f32 - 2000.0) / 100.0).collect();
                let mut y = x.clone();
                Epilogue::<f32> { act, ..Epilogue::NONE }.finish(isa, &mut y, 0, x.len(), x.len());
                for (x, y) in x.iter().zip(&y) {
                    let right = act.of(f64::from(*x));
                    let off = (f64::from(*y) - right).abs();
                    assert!(off <= 5e-7 * right.abs() + 4e-7, "{isa:?} {act}({x}) = {y}, not {right}");
                }
                let mut odd = [f32::NAN, 1.0, f32::INFINITY, 1e30, f32::NEG_INFINITY, -1e30];
                Epilogue::<f32> { act, ..Epilogue::NONE }.finish(isa, &mut odd, 0, 6, 6);
                assert!(odd[0].is_nan() && odd[1..4].iter().all(|x| !x.is_nan()), "{isa:?} {act}: {odd:?}");
                assert_eq!(odd[2], act.of(f64::INFINITY) as f32, "{isa:?} {act}");
                if matches!(act, Activation::Tanh | Activation::Sigmoid) {
                    let right = [1e30, f64::NEG_INFINITY, -1e30].map(|x| act.of(x) as f32);
                    let near = odd[3..].iter().zip(right).all(|(x, right)| (x - right).abs() < 1e-30);
                    assert!(near, "{isa:?} {act}: {odd:?}");
                }
            }
        }
    }

    #[test]
    fn tanh_and_sigmoid_keep_their_digits_near_zero_and_far_below_it() {
        for isa in Isa::available() {
            for (act, from) in [(Activation::Tanh, 1e-30f32), (Activation::Sigmoid, 0.01)] {
                // Magnitudes of both signs up to 80.
                let x: Vec<f32> = (0..2000).map(|i| from * (80.0 / from).powf(i as f32 / 1999.0)).collect();
                let x: Vec<f32> = x.iter().flat_map(|x| [*x, -x]).collect();
                let mut y = x.clone();
                Epilogue::<f32> { act, ..Epilogue::NONE }.finish(isa, &mut y, 0, x.len(), x.len());
                for (x, y) in x.iter().zip(&y) {
                    let right = act.of(f64::from(*x));
                    assert!(
                        (f64::from(*y) - right).abs() <= 5e-7 * right.abs(),
                        "{isa:?} {act}({x}) = {y}, not {right}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_bias_goes_by_columns_of_c_and_what_lies_between_rows_is_left_alone() {
        let bias: Vec<half::bf16> = (0..40).map(|i| half::bf16::from_f32(i as f32)).collect();
        let epilogue = Epilogue { bias: Some(&bias), ..Epilogue::NONE };
        for isa in Isa::available() {
            let mut c = vec![0.5f32; 3 * 50 - 10];
            epilogue.finish(isa, &mut c, 0, 50, 40);
            let right = |i: usize| if i % 50 < 40 { 0.5 + (i % 50) as f32 } else { 0.5 };
            assert!(c.iter().enumerate().all(|(i, c)| *c == right(i)), "{isa:?}");
            let mut turned = vec![0.5f32; 4 * 37];
            let part = Part { at: turned.as_mut_ptr(), row: 37, rows: 4, columns: 37, top: 2, first: 5, turned: true };
            // SAFETY: the vector holds four rows of 37.
            unsafe { epilogue.run(isa, part) };
            assert!(turned.iter().enumerate().all(|(i, c)| *c == 5.5 + (i / 37) as f32), "{isa:?}");
        }
    }

    #[test]
    fn what_is_joined_is_taken_from_the_same_row_and_column_of_c() {
        // 60 rows of 43, the last without padding behind it; every element says where it lies.
        let (row, columns) = (47, 43);
        let elements: Vec<f32> = (0..59 * row + columns).map(|i| (i / row * 100 + i % row) as f32).collect();
        for (isa, how) in Isa::available().into_iter().flat_map(|isa| [Join::Add, Join::Mul].map(|how| (isa, how))) {
            let joined = Some(Joined { elements: &elements, row, how });
            let epilogue = Epilogue { joined, ..Epilogue::NONE };
            let of = |r: usize, c: usize| how.of(2.0, (r * 100 + c) as f64) as f32;
            let mut c = vec![2f32; 5 * columns];
            epilogue.finish(isa, &mut c, 55, columns, columns);
            let right = |i: usize| of(55 + i / columns, i % columns);
            assert!(c.iter().enumerate().all(|(i, c)| *c == right(i)), "{isa:?} {how}");
            // Rows of the part are columns of C here, three from the fortieth on.
            let mut turned = vec![2f32; 3 * 37];
            let (top, first) = (23, 40);
            let part = Part { at: turned.as_mut_ptr(), row: 37, rows: 3, columns: 37, top, first, turned: true };
            // SAFETY: the vector holds three rows of 37.
            unsafe { epilogue.run(isa, part) };
            let right = |i: usize| of(23 + i % 37, 40 + i / 37);
            assert!(turned.iter().enumerate().all(|(i, c)| *c == right(i)), "{isa:?} {how}");
        }
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn a_part_beyond_what_is_joined_is_refused() {
        let joined = Some(Joined { elements: &[1f32; 10][..], row: 5, how: Join::Add });
        Epilogue { joined, ..Epilogue::NONE }.finish(Isa::best(), &mut [0f32; 10], 1, 5, 5);
    }
}
