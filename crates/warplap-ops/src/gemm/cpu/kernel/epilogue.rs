//! The epilogue: bias and activation, on sums in f32 before they are rounded, or on elements that were stored already.
//!
//! Loops hand over a tile while it is in the nearest cache; what is done to it is written once for every instruction
//! set.

use warplap_cpu::simd::{Element, Isa, Lanes, Task, exp};

use crate::gemm::Activation;

/// What is done to a product before it is stored.
#[derive(Clone, Copy)]
pub(crate) struct Epilogue<'a, T> {
    /// One element for each column of C.
    pub bias: Option<&'a [T]>,
    /// What is done then.
    pub act: Activation,
}

impl<T: 'static> Epilogue<'_, T> {
    /// Nothing.
    pub(crate) const NONE: Epilogue<'static, T> = Epilogue { bias: None, act: Activation::None };

    /// Whether nothing is done.
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.bias.is_none() && self.act == Activation::None
    }
}

impl<T: Element> Epilogue<'_, T> {
    /// Finishes rows of C from the first column on, each `row` elements behind the last.
    pub(crate) fn finish<E: Element>(&self, isa: Isa, part: &mut [E], row: usize, columns: usize) {
        let rows = if part.len() < columns || columns == 0 { 0 } else { (part.len() - columns) / row.max(1) + 1 };
        if !self.is_none() {
            let at = part.as_mut_ptr();
            // SAFETY: the part holds so many rows, says the line above.
            unsafe { self.run(isa, Part { at, row, rows, columns, first: 0, turned: false }) };
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
            isa.run(Finish { part, bias, act: self.act });
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
}

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
                    if left >= L::N { E::store::<L>(to, x) } else { E::store_first::<L>(to, x, left) }
                }
            }
        }
    }
}

/// An activation lane by lane; NaN stays NaN.
///
/// # Safety
/// The machine has the instruction set of `L`.
#[inline(always)]
unsafe fn activate<L: Lanes>(act: Activation, x: L::V) -> L::V {
    // SAFETY: the caller has the instruction set.
    unsafe {
        let one = L::splat(1.0);
        match act {
            Activation::None => x,
            // The second is given where one of them is NaN.
            Activation::Relu => L::max(L::zero(), x),
            Activation::Gelu => gelu::<L>(x),
            Activation::GeluTanh => {
                // x (1 + tanh(u)) / 2 = x / (1 + e^(-2u))
                let cubic = L::fma(L::mul(x, x), L::splat(0.044715), one);
                let inner = L::mul(L::mul(x, cubic), L::splat(-1.595_769));
                L::div(x, L::add(one, exp::<L>(inner)))
            }
            Activation::Silu => L::div(x, L::add(one, exp::<L>(L::sub(L::zero(), x)))),
        }
    }
}

/// x Φ(x) = max(x, 0) - |x| Φ(-|x|), with Φ(-|x|) = e^(-x²/2) times a polynomial of t = 1 / (1 + p |x| / √2):
/// Abramowitz and Stegun, "Handbook of Mathematical Functions", 7.1.26, off by at most 0.75e-7. Nothing cancels on
/// either side.
///
/// # Safety
/// As for [`activate`].
#[inline(always)]
unsafe fn gelu<L: Lanes>(x: L::V) -> L::V {
    // SAFETY: the caller has the instruction set.
    unsafe {
        // Nothing is left of the tail from 16 on, and infinity times nothing would be NaN.
        let far = L::min(L::max(L::sub(L::zero(), x), x), L::splat(16.0));
        // p / √2, and half of each coefficient.
        let t = L::div(L::splat(1.0), L::fma(far, L::splat(0.231_641_89), L::splat(1.0)));
        let mut p = L::splat(0.530_702_7);
        p = L::fma(p, t, L::splat(-0.726_576));
        p = L::fma(p, t, L::splat(0.710_706_9));
        p = L::fma(p, t, L::splat(-0.142_248_37));
        p = L::fma(p, t, L::splat(0.127_414_8));
        let tail = L::mul(L::mul(p, t), exp::<L>(L::mul(L::mul(far, far), L::splat(-0.5))));
        L::sub(L::max(L::zero(), x), L::mul(far, tail))
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
                Epilogue::<f32> { bias: None, act }.finish(isa, &mut y, x.len(), x.len());
                for (x, y) in x.iter().zip(&y) {
                    let right = act.of(f64::from(*x));
                    let off = (f64::from(*y) - right).abs();
                    assert!(off <= 5e-7 * right.abs() + 4e-7, "{isa:?} {act}({x}) = {y}, not {right}");
                }
                let mut odd = [f32::NAN, 1.0, f32::INFINITY];
                Epilogue::<f32> { bias: None, act }.finish(isa, &mut odd, 3, 3);
                assert!(odd[0].is_nan() && !odd[1].is_nan() && odd[2] == f32::INFINITY, "{isa:?} {act}");
            }
        }
    }

    #[test]
    fn the_bias_goes_by_columns_of_c_and_what_lies_between_rows_is_left_alone() {
        let bias: Vec<half::bf16> = (0..40).map(|i| half::bf16::from_f32(i as f32)).collect();
        let epilogue = Epilogue { bias: Some(&bias), act: Activation::None };
        for isa in Isa::available() {
            let mut c = vec![0.5f32; 3 * 50 - 10];
            epilogue.finish(isa, &mut c, 50, 40);
            let right = |i: usize| if i % 50 < 40 { 0.5 + (i % 50) as f32 } else { 0.5 };
            assert!(c.iter().enumerate().all(|(i, c)| *c == right(i)), "{isa:?}");
            let mut turned = vec![0.5f32; 4 * 37];
            let part = Part { at: turned.as_mut_ptr(), row: 37, rows: 4, columns: 37, first: 5, turned: true };
            // SAFETY: the vector holds four rows of 37.
            unsafe { epilogue.run(isa, part) };
            assert!(turned.iter().enumerate().all(|(i, c)| *c == 5.5 + (i / 37) as f32), "{isa:?}");
        }
    }
}
