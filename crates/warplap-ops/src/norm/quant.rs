//! Norms as 8-bit numbers: a row's largest magnitude comes in; the factor that makes its numbers codes and the one that
//! makes codes its numbers again go out, and codes. They are what `qgemm` takes with a factor for each row.

use warplap_core::declare::words;
use warplap_core::dtype::DType;
use warplap_core::tolerance::Tolerance;

words! {
    /// What y is written as.
    #[derive(Default)]
    pub enum Quant {
        /// Numbers of the type of x.
        #[default]
        None = "none",
        /// Codes of f8e4m3, and a factor for each row.
        F8E4m3 = "f8e4m3",
        /// Signed bytes from -127 to 127, and a factor for each row.
        I8 = "i8",
    }
}

impl Quant {
    /// The type of codes, where y is written as such.
    pub fn dtype(self) -> Option<DType> {
        match self {
            Quant::None => None,
            Quant::F8E4m3 => Some(DType::F8E4m3),
            Quant::I8 => Some(DType::I8),
        }
    }

    /// The code that the largest of a row gets.
    pub fn top(self) -> f32 {
        if self == Quant::I8 { 127.0 } else { 448.0 }
    }

    /// Half a step between two codes: the share of a number it is at most, and what it is near zero.
    fn half_step(self) -> (f64, f64) {
        match self {
            Quant::None => (0.0, 0.0),
            Quant::F8E4m3 => (DType::F8E4m3.roundoff(), 2f64.powi(-10)),
            Quant::I8 => (0.0, 0.5),
        }
    }
}

/// The least magnitude that a row is said to reach: a row of zeros gets codes of zero and a factor that is one, and one
/// over what is almost nothing stays far from the end of f32. Twin of `codes.cuh`.
pub(super) const LEAST: f32 = 1e-30;

/// Makes what its codes stand beside of a row in double precision. Gives the factor, and one over the largest of the row:
/// nothing for a row of zeros, of which every kernel makes zeros.
pub(super) fn coded(quant: Quant, row: &mut [f64]) -> (f64, f64) {
    let most = row.iter().fold(0f64, |most, y| most.max(y.abs()));
    let (top, held) = (f64::from(quant.top()), most.max(f64::from(LEAST)));
    row.iter_mut().for_each(|y| *y *= top / held);
    (held / top, if most > f64::from(LEAST) { 1.0 / most } else { 0.0 })
}

/// How far codes and factors may be off, where y and a row's largest may be so before they are rounded. `inverse` is one
/// over the largest of the row where that is least.
pub(super) fn allowed(quant: Quant, y: Tolerance, inverse: f64) -> (Tolerance, Tolerance) {
    let (single, top, (share, step)) = (DType::F32.roundoff(), f64::from(quant.top()), quant.half_step());
    // A number over the largest is off by what both are; a quotient and a product are rounded, then comes half a step.
    let relative = (2.0 * y.relative + 4.0 * single) * (1.0 + share);
    let floor = 2.0 * y.floor * top * inverse * (1.0 + share);
    let codes = Tolerance { relative: share + relative, floor: step + floor };
    (codes, Tolerance { relative: y.relative + 2.0 * single, floor: y.floor / top })
}

/// The factor of a row's codes, and the one that makes codes of its numbers. What is no number makes both none.
#[cfg(feature = "cpu")]
pub(super) fn factors(quant: Quant, most: f32) -> (f32, f32) {
    let most = if most < LEAST { LEAST } else { most };
    (most / quant.top(), quant.top() / most)
}

/// The nearest code of f8e4m3, ties to even; 448 for what is beyond. Without branches, so that loops of it become
/// vectors.
#[cfg(feature = "cpu")]
#[inline(always)]
pub(super) fn f8e4m3(x: f32) -> u8 {
    let sign = (x.to_bits() >> 24) & 0x80;
    let size = f32::from_bits(x.to_bits() & 0x7fff_ffff);
    let held = if size > 448.0 { 448.0 } else { size };
    let bits = held.to_bits();
    // Three bits of mantissa are kept, the exponent is 120 less.
    let normal = ((bits + 0x7_ffff + ((bits >> 20) & 1)) >> 20).wrapping_sub(120 << 3);
    // Behind 2^14 a float's last place is the step of the smallest codes.
    let small = (held + 16384.0).to_bits().wrapping_sub(16384f32.to_bits());
    let code = if held < 0.015625 { small } else { normal };
    (sign | if x.is_nan() { 0x7f } else { code }) as u8
}

/// The nearest signed byte from -127 to 127, ties to even.
#[cfg(feature = "cpu")]
#[inline(always)]
pub(super) fn i8(x: f32) -> u8 {
    // Behind 1.5 * 2^23 a float's last place is one.
    (x.clamp(-127.0, 127.0) + 12_582_912.0).to_bits() as u8
}

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use super::*;
    use warplap_core::scalar::{F8E4m3, Scalar};

    #[test]
    fn codes_are_the_nearest_and_ties_go_to_even() {
        for code in 0..0x7eu8 {
            let (low, high) = (F8E4m3(code).to_f64() as f32, F8E4m3(code + 1).to_f64() as f32);
            let middle = (low + high) / 2.0;
            for x in [low, middle, middle.next_down(), middle.next_up(), high, high.next_down()] {
                for x in [x, -x] {
                    assert_eq!(f8e4m3(x), F8E4m3::from_f64(f64::from(x)).0, "{x}");
                }
            }
        }
        for half in -260..=260 {
            for x in [half as f32 / 2.0, (half as f32 / 2.0).next_up(), (half as f32 / 2.0).next_down()] {
                assert_eq!(i8(x) as i8, x.clamp(-127.0, 127.0).round_ties_even() as i8, "{x}");
            }
        }
    }

    #[test]
    fn what_is_beyond_is_held_and_no_number_is_none() {
        assert_eq!([448.1, 1e30, f32::INFINITY, -1e9].map(f8e4m3), [0x7e, 0x7e, 0x7e, 0xfe]);
        assert_eq!(f8e4m3(f32::NAN) & 0x7f, 0x7f);
        assert_eq!([1e30, f32::NEG_INFINITY].map(|x| i8(x) as i8), [127, -127]);
        for quant in [Quant::F8E4m3, Quant::I8] {
            let (scale, factor) = factors(quant, 0.0);
            assert!(scale > 0.0 && scale.is_normal() && factor.is_finite() && 0.0 * factor == 0.0);
            assert!(factors(quant, f32::NAN).0.is_nan());
            assert_eq!(factors(quant, 2.0), (2.0 / quant.top(), quant.top() / 2.0));
        }
    }
}
