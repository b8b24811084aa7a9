//! Host arrays: what inputs are drawn into and answers are read back as.

use std::borrow::Cow;

use crate::dtypes;
use crate::model::dtype::DType;
use crate::model::scalar::Scalar;

/// Elements one thread writes at a time.
const PART: usize = 1 << 20;

macro_rules! array {
    ($($V:ident = $T:ty, ($doc:literal, $($facts:tt)*);)*) => {
        /// A typed array in host memory.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Array {
            $(#[doc = $doc] $V(Vec<$T>),)*
        }

        $(impl From<Vec<$T>> for Array {
            fn from(values: Vec<$T>) -> Self {
                Array::$V(values)
            }
        })*

        impl Array {
            /// Numbers rounded to a type.
            pub fn from_f64(dtype: DType, values: impl IntoIterator<Item = f64>) -> Self {
                let values = values.into_iter();
                match dtype { $(DType::$V => Array::$V(values.map(Scalar::from_f64).collect()),)* }
            }

            /// What bytes hold as they lie in memory; what is left over at their end does not count.
            pub fn from_bytes(dtype: DType, bytes: &[u8]) -> Self {
                match dtype { $(DType::$V => Array::$V(taken(bytes)),)* }
            }

            /// Zeros in memory that the system hands out when it is first written: by whichever core does so, not here.
            fn zeros(dtype: DType, len: usize) -> Self {
                match dtype { $(DType::$V => Array::$V(Scalar::zeros(len)),)* }
            }

            /// The type of its elements.
            pub fn dtype(&self) -> DType {
                match self { $(Array::$V(_) => DType::$V,)* }
            }

            /// Whether both hold the same numbers; large ones are compared on all cores.
            pub(crate) fn same(&self, other: &Array) -> bool {
                match (self, other) {
                    $((Array::$V(a), Array::$V(b)) => equal(a, b),)*
                    _ => false,
                }
            }
        }
    };
}
dtypes!(array);

/// Runs one body for whichever type an array holds: `each_array!(array, v => body)`.
#[macro_export]
macro_rules! each_array {
    ($array:expr, $v:ident => $body:expr) => {
        $crate::dtypes!(each_array @ ($array) $v ($body);)
    };
    (@ ($array:expr) $v:ident ($body:expr); $($V:ident = $T:ty, $facts:tt;)*) => {
        match $array { $($crate::array::Array::$V($v) => $body,)* }
    };
}
use each_array as each;

impl Array {
    /// Random elements: floats uniform in [-1, 1), bytes any, wider integers 0 to 255. Zeros would hide unwritten
    /// outputs and wrong indexing, and can run faster. What a seed gives is the same on any number of cores.
    pub fn random(dtype: DType, len: usize, rng: &mut fastrand::Rng) -> Self {
        let mut array = Self::zeros(dtype, len);
        let seeds: Vec<u64> = (0..len.div_ceil(PART)).map(|_| rng.u64(..)).collect();
        each!(&mut array, v => draw(v, &seeds));
        array
    }

    /// Elements that a function draws, knowing their places, as [`Array::random`] draws its own.
    pub fn drawn(
        dtype: DType,
        len: usize,
        rng: &mut fastrand::Rng,
        of: impl Fn(usize, &mut fastrand::Rng) -> f64 + Sync,
    ) -> Self {
        let mut array = Self::zeros(dtype, len);
        let seeds: Vec<u64> = (0..len.div_ceil(PART)).map(|_| rng.u64(..)).collect();
        each!(&mut array, v => spread(v, |number, part| {
            let mut rng = fastrand::Rng::with_seed(seeds[number]);
            let place = (number * PART..).zip(part);
            place.for_each(|(at, v)| *v = Scalar::from_f64(of(at, &mut rng)));
        }));
        array
    }

    /// `len` copies of one number.
    pub fn filled(dtype: DType, len: usize, value: f64) -> Self {
        let mut array = Self::zeros(dtype, len);
        if value.to_bits() != 0 {
            each!(&mut array, v => fill(v, value));
        }
        array
    }

    /// Puts one number into some of its elements.
    pub(crate) fn fill(&mut self, elements: std::ops::Range<usize>, value: f64) {
        each!(self, v => v[elements].fill(Scalar::from_f64(value)));
    }

    /// Puts another array of the same type into its elements from one on.
    pub(crate) fn put(&mut self, start: usize, from: &Array) {
        match (self, from) {
            (Array::F64(to), Array::F64(v)) => to[start..start + v.len()].copy_from_slice(v),
            (Array::F32(to), Array::F32(v)) => to[start..start + v.len()].copy_from_slice(v),
            (Array::F16(to), Array::F16(v)) => to[start..start + v.len()].copy_from_slice(v),
            (Array::Bf16(to), Array::Bf16(v)) => to[start..start + v.len()].copy_from_slice(v),
            (Array::I32(to), Array::I32(v)) => to[start..start + v.len()].copy_from_slice(v),
            (to, from) => (0..from.len()).for_each(|i| to.fill(start + i..start + i + 1, from.at(i))),
        }
    }

    /// No array: what stands for a slot that nothing is read from.
    pub const fn none() -> Self {
        Array::F32(Vec::new())
    }

    /// Elements.
    pub fn len(&self) -> usize {
        each!(self, v => v.len())
    }

    /// Whether it holds no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes it takes.
    pub fn bytes(&self) -> usize {
        self.len() * self.dtype().bytes()
    }

    /// One element in double precision (exact, but for integers beyond 2^53).
    pub fn at(&self, i: usize) -> f64 {
        each!(self, v => Scalar::to_f64(v[i]))
    }

    /// All elements in double precision.
    pub fn to_f64(&self) -> Vec<f64> {
        let mut wide = <f64 as Scalar>::zeros(self.len());
        each!(self, v => spread(&mut wide, |number, part| {
            part.iter_mut().zip(&v[number * PART..]).for_each(|(to, x)| *to = Scalar::to_f64(*x));
        }));
        wide
    }

    /// All elements in double precision, without a copy where that is what they are.
    pub fn wide(&self) -> Cow<'_, [f64]> {
        match self {
            Array::F64(own) => Cow::Borrowed(own),
            other => Cow::Owned(other.to_f64()),
        }
    }

    /// Its bytes as they lie in memory.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes());
        each!(self, v => v.iter().for_each(|x| x.put(&mut bytes)));
        bytes
    }

    /// The indices, where it holds indices.
    pub fn indices(&self) -> Option<&[i32]> {
        match self {
            Array::I32(v) => Some(v),
            _ => None,
        }
    }
}

fn taken<T: Scalar>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(T::get).collect()
}

fn equal<T: PartialEq + Sync>(a: &[T], b: &[T]) -> bool {
    if a.len() != b.len() || a.len() <= PART {
        return a == b;
    }
    let part = a.len().div_ceil(std::thread::available_parallelism().map_or(1, usize::from)).max(PART);
    std::thread::scope(|scope| {
        let pairs = a.chunks(part).zip(b.chunks(part));
        let threads: Vec<_> = pairs.map(|(a, b)| scope.spawn(move || a == b)).collect();
        threads.into_iter().all(|t| t.join().unwrap_or(false))
    })
}

fn fill<T: Scalar>(values: &mut [T], value: f64) {
    let value = T::from_f64(value);
    spread(values, |_, part| part.fill(value));
}

/// Draws every part from its own seed.
fn draw<T: Scalar>(values: &mut [T], seeds: &[u64]) {
    spread(values, |number, part| {
        let mut rng = fastrand::Rng::with_seed(seeds[number]);
        part.iter_mut().for_each(|v| *v = T::drawn(&mut rng));
    });
}

/// Hands every part with its number to a body, on all cores where there are several parts.
fn spread<T: Send>(values: &mut [T], body: impl Fn(usize, &mut [T]) + Sync) {
    let run = |first: usize, values: &mut [T]| {
        values.chunks_mut(PART).enumerate().for_each(|(i, part)| body(first + i, part));
    };
    let parts = values.len().div_ceil(PART);
    if parts < 2 {
        return run(0, values);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (each, run) = (parts.div_ceil(cores), &run);
    std::thread::scope(|scope| {
        for (i, values) in values.chunks_mut(each * PART).enumerate() {
            scope.spawn(move || run(i * each, values));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::scalar::bf16;

    #[test]
    fn what_is_drawn_by_place_is_there_and_the_same_for_a_seed() {
        let draw = |at: usize, rng: &mut fastrand::Rng| if at % 1000 == 7 { -1.0 } else { rng.f64() };
        let make = || Array::drawn(DType::F32, 2 * PART + 9, &mut fastrand::Rng::with_seed(3), draw);
        let one = make();
        assert!(one.same(&make()));
        for at in [7, 1007, PART - 1, PART, 2 * PART + 8] {
            assert_eq!(one.at(at) < 0.0, at % 1000 == 7, "{at}");
        }
        assert_ne!(one.at(0), one.at(PART));
    }

    #[test]
    fn an_array_of_several_parts_is_filled_to_its_end() {
        for dtype in DType::ALL {
            for value in [0.0, -0.0, 3.0] {
                let (filled, len) = (Array::filled(dtype, 2 * PART + 3, value), 2 * PART + 3);
                assert!(filled.same(&Array::from_f64(dtype, std::iter::repeat_n(value, len))), "{dtype} {value}");
            }
        }
    }

    #[test]
    fn a_seed_gives_the_same_numbers_however_long_the_array_and_one_other_number_is_seen() {
        for len in [0, 1, PART, PART + 1, 3 * PART + 7] {
            let draw = || Array::random(DType::Bf16, len, &mut fastrand::Rng::with_seed(5));
            let (one, mut other) = (draw(), draw());
            assert!(one.len() == len && one.same(&other) && one == other, "{len}");
            if let (Array::Bf16(values), true) = (&mut other, len > 0) {
                values[len - 1] += bf16::ONE;
                assert!(!one.same(&other), "{len}");
            }
            assert!(one.to_f64().iter().all(|v| (-1.0..=1.0).contains(v)));
        }
        let all = Array::random(DType::F32, 2 * PART, &mut fastrand::Rng::with_seed(5));
        assert_ne!(all.to_f64()[..PART], all.to_f64()[PART..], "each part has numbers of its own");
    }

    #[test]
    fn every_type_is_drawn_read_and_written() {
        for dtype in DType::ALL {
            let mut drawn = Array::random(dtype, 1000, &mut fastrand::Rng::with_seed(3));
            let values = drawn.to_f64();
            assert_eq!((drawn.dtype(), drawn.len(), drawn.bytes()), (dtype, 1000, 1000 * dtype.bytes()));
            assert!(values.iter().any(|v| *v != values[0]), "{dtype}");
            assert!(
                Array::from_f64(dtype, values.iter().copied()).same(&drawn),
                "{dtype}: what is read is what is written"
            );
            assert_eq!(drawn.at(7), values[7]);
            assert_eq!(drawn.to_bytes().len(), drawn.bytes(), "{dtype}");
            assert!(Array::from_bytes(dtype, &drawn.to_bytes()).same(&drawn), "{dtype}");
            let before = drawn.clone();
            drawn.fill(3..5, 1.0 - values[3]);
            assert_eq!(drawn.same(&before), drawn == before, "{dtype}");
            assert_eq!(drawn.at(4), dtype.rounded(1.0 - values[3]));
            assert_eq!([drawn.at(2), drawn.at(5)], [values[2], values[5]]);
            assert!(!drawn.same(&Array::filled(if dtype == DType::U8 { DType::I8 } else { DType::U8 }, 1000, 0.0)));
        }
    }
}
