//! Scalars: the Rust type of one element, its way to and from double precision, and how one is drawn.
//!
//! Eight-bit floats are bits with a type: nothing is computed in them.

pub use half::{bf16, f16};

use half::vec::HalfBitsVecExt;

/// One element of an array.
pub trait Scalar: Copy + PartialEq + Send + Sync + 'static {
    /// The nearest element, ties to even; integers are cut and held to their range.
    fn from_f64(value: f64) -> Self;

    /// Exact but for integers beyond 2^53.
    fn to_f64(self) -> f64;

    /// Zeros, in memory that the system hands out when it is first written where that can be had.
    fn zeros(len: usize) -> Vec<Self>;

    /// Appends its bytes as they lie in memory.
    fn put(self, to: &mut Vec<u8>);
    /// What its bytes hold, as they lie in memory.
    fn get(bytes: &[u8]) -> Self;

    /// A random element: floats uniform in [-1, 1), bytes any, wider integers 0 to 255, a coin's side.
    fn drawn(rng: &mut fastrand::Rng) -> Self {
        Self::from_f64(rng.f64() * 2.0 - 1.0)
    }
}

/// An eight-bit float with four bits of exponent and three of mantissa, as PyTorch's `float8_e4m3fn`: it has NaN and no
/// infinities, and its largest number is 448.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct F8E4m3(pub u8);

/// An eight-bit float with five bits of exponent and two of mantissa, as PyTorch's `float8_e5m2`: an IEEE half cut
/// short; its largest number is 57344.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct F8E5m2(pub u8);

/// A truth value in one byte: 0 or 1. A byte that is neither was written by nobody who knows the type, and reads as
/// NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Bool(pub u8);

/// How an eight-bit float is laid out.
struct Layout {
    mantissa: i32,
    bias: i32,
    /// The code of its largest finite number.
    largest: u8,
}

const NAN: u8 = 0x7f;
const E4M3: Layout = Layout { mantissa: 3, bias: 7, largest: 0x7e };
const E5M2: Layout = Layout { mantissa: 2, bias: 15, largest: 0x7b };

impl Layout {
    /// The nearest number, ties to even. What is too large becomes the largest finite number, as GPUs convert.
    fn encode(&self, value: f64) -> u8 {
        let (sign, size) = (u8::from(value.is_sign_negative()) << 7, value.abs());
        if size >= 65536.0 {
            return sign | self.largest;
        }
        // Below the smallest normal number the step stays the same.
        let exponent = ((size.to_bits() >> 52) as i32 - 1023).max(1 - self.bias);
        let steps = (size * 2f64.powi(self.mantissa - exponent)).round_ties_even() as i32;
        let code = ((exponent + self.bias - 1) << self.mantissa) + steps;
        sign | code.min(i32::from(self.largest)) as u8
    }

    /// The number of a code that is finite.
    fn decode(&self, code: u8) -> f64 {
        let (exponent, one) = (i32::from(code & 0x7f) >> self.mantissa, 1 << self.mantissa);
        let mantissa = i32::from(code) & (one - 1);
        let (steps, exponent) = if exponent == 0 { (mantissa, 1) } else { (one + mantissa, exponent) };
        let size = f64::from(steps) * 2f64.powi(exponent - self.bias - self.mantissa);
        if code >> 7 == 1 { -size } else { size }
    }
}

/// Zeros of a type that is one byte: a wrapped byte is laid out as the byte, so nothing is copied.
fn bytes<T>(len: usize, wrap: impl Fn(u8) -> T) -> Vec<T> {
    vec![0u8; len].into_iter().map(wrap).collect()
}

impl Scalar for F8E4m3 {
    fn from_f64(value: f64) -> Self {
        F8E4m3(if value.is_nan() { NAN } else { E4M3.encode(value) })
    }
    fn to_f64(self) -> f64 {
        if self.0 & 0x7f == NAN { f64::NAN } else { E4M3.decode(self.0) }
    }
    fn zeros(len: usize) -> Vec<Self> {
        bytes(len, F8E4m3)
    }
    fn put(self, to: &mut Vec<u8>) {
        to.push(self.0);
    }
    fn get(bytes: &[u8]) -> Self {
        Self(bytes[0])
    }
}

impl Scalar for F8E5m2 {
    fn from_f64(value: f64) -> Self {
        F8E5m2(match value {
            nan if nan.is_nan() => NAN,
            // Infinity is a number it has.
            f64::INFINITY => 0x7c,
            f64::NEG_INFINITY => 0xfc,
            finite => E5M2.encode(finite),
        })
    }
    fn to_f64(self) -> f64 {
        match self.0 {
            0x7c => f64::INFINITY,
            0xfc => f64::NEG_INFINITY,
            code if code & 0x7f > 0x7c => f64::NAN,
            code => E5M2.decode(code),
        }
    }
    fn zeros(len: usize) -> Vec<Self> {
        bytes(len, F8E5m2)
    }
    fn put(self, to: &mut Vec<u8>) {
        to.push(self.0);
    }
    fn get(bytes: &[u8]) -> Self {
        Self(bytes[0])
    }
}

impl Scalar for Bool {
    fn from_f64(value: f64) -> Self {
        Bool(if value.is_nan() { u8::MAX } else { u8::from(value != 0.0) })
    }
    fn to_f64(self) -> f64 {
        if self.0 > 1 { f64::NAN } else { f64::from(self.0) }
    }
    fn zeros(len: usize) -> Vec<Self> {
        bytes(len, Bool)
    }
    fn put(self, to: &mut Vec<u8>) {
        to.push(self.0);
    }
    fn get(bytes: &[u8]) -> Self {
        Self(bytes[0])
    }
    fn drawn(rng: &mut fastrand::Rng) -> Self {
        Bool(u8::from(rng.bool()))
    }
}

macro_rules! plain {
    ($($T:ty $(, $drawn:expr)?;)*) => {$(
        impl Scalar for $T {
            fn from_f64(value: f64) -> Self {
                value as $T
            }
            fn to_f64(self) -> f64 {
                self as f64
            }
            fn zeros(len: usize) -> Vec<Self> {
                vec![0 as $T; len]
            }
            fn put(self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_ne_bytes());
            }
            fn get(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<$T>()];
                own.copy_from_slice(bytes);
                <$T>::from_ne_bytes(own)
            }
            $(fn drawn(rng: &mut fastrand::Rng) -> Self {
                let drawn: fn(&mut fastrand::Rng) -> Self = $drawn;
                drawn(rng)
            })?
        }
    )*};
}
plain! {
    f64;
    f32;
    i64, |rng| rng.u8(..).into();
    i32, |rng| rng.u8(..).into();
    i8, |rng| rng.i8(..);
    u8, |rng| rng.u8(..);
}

macro_rules! halves {
    ($($T:ty),*) => {$(
        impl Scalar for $T {
            fn from_f64(value: f64) -> Self {
                <$T>::from_f64(value)
            }
            fn to_f64(self) -> f64 {
                <$T>::to_f64(self)
            }
            fn zeros(len: usize) -> Vec<Self> {
                vec![0u16; len].reinterpret_into()
            }
            fn put(self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_ne_bytes());
            }
            fn get(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<$T>()];
                own.copy_from_slice(bytes);
                <$T>::from_ne_bytes(own)
            }
        }
    )*};
}
halves!(f16, bf16);

#[cfg(test)]
mod tests {
    use super::*;

    /// Every code's number goes back to that code, numbers between two codes go to the nearer, and those in the middle
    /// to the even one.
    fn all_codes<T: Scalar + std::fmt::Debug>(make: fn(u8) -> T, code: fn(T) -> u8, largest: u8) {
        for c in 0..=255u8 {
            let value = make(c).to_f64();
            if value.is_nan() {
                assert_eq!(code(T::from_f64(value)), NAN);
            } else {
                assert_eq!(T::from_f64(value), make(c), "{c:#x} is {value}");
                assert_eq!(value.is_sign_negative(), c >= 0x80);
            }
        }
        for c in 0..largest {
            for sign in [0u8, 0x80] {
                let (low, high) = (make(c | sign).to_f64(), make((c + 1) | sign).to_f64());
                let (middle, even) = ((low + high) / 2.0, if c % 2 == 0 { c } else { c + 1 });
                assert!(low.abs() < high.abs());
                assert_eq!(code(T::from_f64(middle)), even | sign, "between {low} and {high}");
                let near = |share: f64| code(T::from_f64(low + (high - low) * share));
                assert_eq!([near(0.499), near(0.501)], [c | sign, (c + 1) | sign]);
                // The neighbours of the middle in double precision are on a side already.
                let (below, above) = (middle.next_down(), middle.next_up());
                let (in_, out) = if sign == 0 { (below, above) } else { (above, below) };
                assert_eq!([code(T::from_f64(in_)), code(T::from_f64(out))], [c | sign, (c + 1) | sign]);
            }
        }
        let most = make(largest).to_f64();
        for large in [most, most * 1.01, most * 2.0, 65535.9, 1e30, f64::MAX] {
            let large = large.max(most);
            assert_eq!([code(T::from_f64(large)), code(T::from_f64(-large))], [largest, largest | 0x80], "{large}");
        }
        for tiny in [0.0, f64::MIN_POSITIVE, 5e-324, make(1).to_f64() / 2.0] {
            assert_eq!([code(T::from_f64(tiny)), code(T::from_f64(-tiny))], [0, 0x80], "{tiny}");
        }
    }

    #[test]
    fn every_code_of_e4m3_is_its_number_and_back() {
        all_codes(F8E4m3, |x| x.0, 0x7e);
        let known =
            [(0x00, 0.0), (0x01, 0.001953125), (0x07, 0.013671875), (0x08, 0.015625), (0x38, 1.0), (0x7e, 448.0)];
        known.iter().for_each(|(code, value)| assert_eq!(F8E4m3(*code).to_f64(), *value));
        assert!(F8E4m3(0x7f).to_f64().is_nan() && F8E4m3(0xff).to_f64().is_nan());
        assert_eq!(F8E4m3::from_f64(f64::INFINITY), F8E4m3(0x7e), "it has no infinity");
    }

    #[test]
    fn every_code_of_e5m2_is_its_number_and_that_of_the_half_it_begins() {
        all_codes(F8E5m2, |x| x.0, 0x7b);
        for code in 0..=255u8 {
            let (value, half) = (F8E5m2(code).to_f64(), f16::from_bits(u16::from(code) << 8).to_f64());
            assert!(value == half || value.is_nan() && half.is_nan(), "{code:#x}: {value} and {half}");
        }
    }

    #[test]
    fn integers_are_held_to_their_range_and_a_truth_value_is_one_of_two() {
        assert_eq!([i8::from_f64(-200.0), i8::from_f64(1.9), i8::from_f64(f64::NAN)], [-128, 1, 0]);
        assert_eq!([u8::from_f64(-1.0), u8::from_f64(300.0)], [0, 255]);
        assert_eq!(<i64 as Scalar>::from_f64(1e300), i64::MAX);
        assert_eq!([Bool::from_f64(0.0), Bool::from_f64(-3.5), Bool::from_f64(1.0)], [Bool(0), Bool(1), Bool(1)]);
        assert!(Bool(2).to_f64().is_nan() && Bool::from_f64(f64::NAN).to_f64().is_nan());
    }
}
