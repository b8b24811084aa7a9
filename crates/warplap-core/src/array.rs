//! Host arrays: what inputs are drawn into and answers are read back as.

use half::vec::HalfBitsVecExt;
use half::{bf16, f16};

use crate::dtype::DType;

/// Elements one thread writes at a time.
const PART: usize = 1 << 20;

/// A typed array in host memory.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// Double precision.
    F64(Vec<f64>),
    /// Single precision.
    F32(Vec<f32>),
    /// Half precision.
    F16(Vec<f16>),
    /// Brain float.
    Bf16(Vec<bf16>),
    /// Indices.
    I32(Vec<i32>),
}

/// Runs one body for whichever type the array holds.
macro_rules! each {
    ($array:expr, $v:ident => $body:expr) => {
        match $array {
            Array::F64($v) => $body,
            Array::F32($v) => $body,
            Array::F16($v) => $body,
            Array::Bf16($v) => $body,
            Array::I32($v) => $body,
        }
    };
}

impl Array {
    /// Numbers rounded to a type.
    pub fn from_f64(dtype: DType, values: impl IntoIterator<Item = f64>) -> Self {
        let values = values.into_iter();
        match dtype {
            DType::F64 => Array::F64(values.collect()),
            DType::F32 => Array::F32(values.map(|v| v as f32).collect()),
            DType::F16 => Array::F16(values.map(f16::from_f64).collect()),
            DType::Bf16 => Array::Bf16(values.map(bf16::from_f64).collect()),
            DType::I32 => Array::I32(values.map(|v| v as i32).collect()),
        }
    }

    /// Uniform numbers in [-1, 1): zeros would hide unwritten outputs and wrong indexing, and can run faster. What a seed
    /// gives is the same on any number of cores.
    pub fn random(dtype: DType, len: usize, rng: &mut fastrand::Rng) -> Self {
        let mut array = Self::zeros(dtype, len);
        let seeds: Vec<u64> = (0..len.div_ceil(PART)).map(|_| rng.u64(..)).collect();
        match &mut array {
            Array::F64(v) => draw(v, &seeds, |x| x),
            Array::F32(v) => draw(v, &seeds, |x| x as f32),
            Array::F16(v) => draw(v, &seeds, f16::from_f64),
            Array::Bf16(v) => draw(v, &seeds, bf16::from_f64),
            Array::I32(v) => draw(v, &seeds, |x| x as i32),
        }
        array
    }

    /// `len` copies of one number.
    pub fn filled(dtype: DType, len: usize, value: f64) -> Self {
        let mut array = Self::zeros(dtype, len);
        match &mut array {
            _ if value.to_bits() == 0 => {}
            Array::F64(v) => spread(v, |_, part| part.fill(value)),
            Array::F32(v) => spread(v, |_, part| part.fill(value as f32)),
            Array::F16(v) => spread(v, |_, part| part.fill(f16::from_f64(value))),
            Array::Bf16(v) => spread(v, |_, part| part.fill(bf16::from_f64(value))),
            Array::I32(v) => spread(v, |_, part| part.fill(value as i32)),
        }
        array
    }

    /// Zeros in memory that the system hands out when it is first written: by whichever core does so, not here.
    fn zeros(dtype: DType, len: usize) -> Self {
        match dtype {
            DType::F64 => Array::F64(vec![0.0; len]),
            DType::F32 => Array::F32(vec![0.0; len]),
            DType::F16 => Array::F16(vec![0u16; len].reinterpret_into()),
            DType::Bf16 => Array::Bf16(vec![0u16; len].reinterpret_into()),
            DType::I32 => Array::I32(vec![0; len]),
        }
    }

    /// Puts one number into some of its elements.
    pub(crate) fn fill(&mut self, elements: std::ops::Range<usize>, value: f64) {
        match self {
            Array::F64(v) => v[elements].fill(value),
            Array::F32(v) => v[elements].fill(value as f32),
            Array::F16(v) => v[elements].fill(f16::from_f64(value)),
            Array::Bf16(v) => v[elements].fill(bf16::from_f64(value)),
            Array::I32(v) => v[elements].fill(value as i32),
        }
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

    /// The type of its elements.
    pub fn dtype(&self) -> DType {
        match self {
            Array::F64(_) => DType::F64,
            Array::F32(_) => DType::F32,
            Array::F16(_) => DType::F16,
            Array::Bf16(_) => DType::Bf16,
            Array::I32(_) => DType::I32,
        }
    }

    /// One element in double precision (exact for every type).
    pub fn at(&self, i: usize) -> f64 {
        match self {
            Array::F64(v) => v[i],
            Array::F32(v) => f64::from(v[i]),
            Array::F16(v) => v[i].to_f64(),
            Array::Bf16(v) => v[i].to_f64(),
            Array::I32(v) => f64::from(v[i]),
        }
    }

    /// All elements in double precision.
    pub fn to_f64(&self) -> Vec<f64> {
        match self {
            Array::F64(v) => v.clone(),
            Array::F32(v) => v.iter().map(|x| f64::from(*x)).collect(),
            Array::F16(v) => v.iter().map(|x| x.to_f64()).collect(),
            Array::Bf16(v) => v.iter().map(|x| x.to_f64()).collect(),
            Array::I32(v) => v.iter().map(|x| f64::from(*x)).collect(),
        }
    }

    /// Whether both hold the same numbers; large ones are compared on all cores.
    pub(crate) fn same(&self, other: &Array) -> bool {
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
        match (self, other) {
            (Array::F64(a), Array::F64(b)) => equal(a, b),
            (Array::F32(a), Array::F32(b)) => equal(a, b),
            (Array::F16(a), Array::F16(b)) => equal(a, b),
            (Array::Bf16(a), Array::Bf16(b)) => equal(a, b),
            (Array::I32(a), Array::I32(b)) => equal(a, b),
            _ => false,
        }
    }

    /// The indices, where it holds indices.
    pub fn indices(&self) -> Option<&[i32]> {
        match self {
            Array::I32(v) => Some(v),
            _ => None,
        }
    }
}

/// Draws every part from its own seed.
fn draw<T: Send>(values: &mut [T], seeds: &[u64], rounded: impl Fn(f64) -> T + Sync) {
    spread(values, |number, part| {
        let mut rng = fastrand::Rng::with_seed(seeds[number]);
        part.iter_mut().for_each(|v| *v = rounded(rng.f64() * 2.0 - 1.0));
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

    #[test]
    fn an_array_of_several_parts_is_filled_to_its_end() {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::Bf16, DType::I32] {
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
}
