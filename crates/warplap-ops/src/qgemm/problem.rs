//! The facts of one product of 8-bit numbers.

use std::fmt;
use std::str::FromStr;

use warplap_core::bucket::Bucket;
use warplap_core::dtype::DType;
use warplap_core::problem::{FieldReader, Fields, Problem, ProblemError};
use warplap_core::roofline::{Ceilings, Work};

/// Elements along k, and columns of B, that share one factor where factors belong to blocks.
pub const BLOCK: u64 = 128;

/// What the factors belong to that make 8-bit numbers the numbers they stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scale {
    /// There are none.
    #[default]
    None,
    /// One for A and one for B.
    Tensor,
    /// One for each row of A and one for each column of B.
    Row,
    /// One for each 128 elements of a row of A along k, and one for each 128×128 of B.
    Block,
}

impl Scale {
    const NAMES: [(Scale, &'static str); 4] =
        [(Scale::None, "none"), (Scale::Tensor, "tensor"), (Scale::Row, "row"), (Scale::Block, "block")];
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Scale::NAMES.iter().find(|(scale, _)| scale == self).map_or("", |(_, name)| name))
    }
}

impl FromStr for Scale {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        Scale::NAMES.iter().find(|(_, name)| *name == text).map(|(scale, _)| *scale).ok_or(())
    }
}

/// The facts of C (m×n) = A (m×k) · B (k×n) of 8-bit numbers. A and C are row-major, B is column-major: both factors
/// lie along k, as tensor cores take bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QgemmProblem {
    /// Rows of A and C.
    pub m: u64,
    /// Columns of B and C.
    pub n: u64,
    /// Columns of A, rows of B.
    pub k: u64,
    /// Type of A and B: f8e4m3 or i8.
    pub dtype: DType,
    /// Type of C: bf16, f16 or f32 for f8e4m3, i32 for i8.
    pub out: DType,
    /// What the factors belong to.
    pub scale: Scale,
    /// Whether the tensor cores' own sums, which keep about 14 bits, may run through all of k. Else they are added up
    /// in f32 every 128 elements at the latest.
    pub fast: bool,
}

impl QgemmProblem {
    /// A product of signed bytes.
    pub fn int8(m: u64, n: u64, k: u64) -> Self {
        QgemmProblem { m, n, k, dtype: DType::I8, out: DType::I32, scale: Scale::None, fast: false }
    }

    /// A product of f8e4m3.
    pub fn fp8(m: u64, n: u64, k: u64, out: DType, scale: Scale) -> Self {
        QgemmProblem { m, n, k, dtype: DType::F8E4m3, out, scale, fast: false }
    }

    /// Whether it is a product of signed bytes, whose sums are exact.
    pub fn is_int(&self) -> bool {
        self.dtype == DType::I8
    }

    /// Blocks of 128 along k.
    pub fn k_blocks(&self) -> u64 {
        self.k.div_ceil(BLOCK)
    }

    /// Factors from one block of columns of B to the next: a multiple of four, as cuBLASLt has it.
    pub fn b_scale_pitch(&self) -> u64 {
        self.k_blocks().next_multiple_of(4)
    }

    /// How the factors of A lie, sizes and strides: of blocks, those of a row are a column's length apart.
    pub fn a_scales(&self) -> (Vec<u64>, Vec<u64>) {
        match self.scale {
            Scale::None | Scale::Tensor => (vec![1], vec![1]),
            Scale::Row => (vec![self.m], vec![1]),
            Scale::Block => (vec![self.m, self.k_blocks()], vec![1, self.m]),
        }
    }

    /// How the factors of B lie, sizes and strides.
    pub fn b_scales(&self) -> (Vec<u64>, Vec<u64>) {
        match self.scale {
            Scale::None | Scale::Tensor => (vec![1], vec![1]),
            Scale::Row => (vec![self.n], vec![1]),
            Scale::Block => (vec![self.k_blocks(), self.n.div_ceil(BLOCK)], vec![1, self.b_scale_pitch()]),
        }
    }

    /// Whether lines of A, B and C begin on 16 bytes, as copy engines and libraries want them.
    pub fn is_even(&self) -> bool {
        self.k.is_multiple_of(16) && (self.n * self.out.bytes() as u64).is_multiple_of(16)
    }
}

impl Problem for QgemmProblem {
    type Op = super::Qgemm;

    const FIELDS: &'static [&'static str] = &["m", "n", "k", "dtype", "out", "scale", "fast"];

    fn fields(&self) -> Fields {
        Fields::new()
            .with("m", self.m)
            .with("n", self.n)
            .with("k", self.k)
            .with("dtype", self.dtype)
            .with("out", self.out)
            .with("scale", self.scale)
            .with_unless("fast", self.fast, false)
    }

    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        let (m, n, k) = (fields.size("m")?, fields.size("n")?, fields.size("k")?);
        let kinds = "f8e4m3 or i8";
        let dtype = fields.word_or("dtype", kinds, DType::F8E4m3)?;
        let (outs, expected, scales) = match dtype {
            DType::F8E4m3 => (&[DType::Bf16, DType::F16, DType::F32][..], "bf16, f16 or f32 with dtype=f8e4m3", true),
            DType::I8 => (&[DType::I32][..], "i32 with dtype=i8", false),
            other => return Err(ProblemError::value("dtype", other, kinds)),
        };
        let out = fields.word_or("out", expected, outs[0])?;
        if !outs.contains(&out) {
            return Err(ProblemError::value("out", out, expected));
        }
        let expected = if scales { "none, tensor, row or block" } else { "none with dtype=i8" };
        let scale = fields.word_or("scale", expected, if scales { Scale::Tensor } else { Scale::None })?;
        if !scales && scale != Scale::None {
            return Err(ProblemError::value("scale", scale, expected));
        }
        let fast = fields.word_or("fast", "true or false", false)?;
        if fast && !scales {
            return Err(ProblemError::value("fast", fast, "false with dtype=i8, whose sums are exact"));
        }
        if fast && scale == Scale::Block {
            let expected = "false with scale=block: a block's factor is applied to its own sum";
            return Err(ProblemError::value("fast", fast, expected));
        }
        Ok(QgemmProblem { m, n, k, dtype, out, scale, fast })
    }

    fn key_fields(&self, bucket: &Bucket) -> Fields {
        // Which kernels may race hangs on whether lines begin on 16 bytes, which rounded sizes would hide.
        self.representative(bucket).fields().with("even", self.is_even())
    }

    fn representative(&self, bucket: &Bucket) -> Self {
        let (m, n, k) = (bucket.round_changing("m", self.m), bucket.round("n", self.n), bucket.round("k", self.k));
        let rounded = QgemmProblem { m, n, k, ..*self };
        // Rounded up to what has even lines, an uneven problem would be raced by who cannot do it.
        if rounded.is_even() == self.is_even() { rounded } else { QgemmProblem { n: self.n, k: self.k, ..rounded } }
    }

    fn ragged(&self) -> Option<Self> {
        // One short of a tile or beyond it; lines that begin on 16 bytes keep doing so, others keep not.
        let cut = |size: u64, most: u64| match size {
            0..=16 => size,
            size if size.is_multiple_of(16) && size <= most => size - 16,
            size if size.is_multiple_of(16) => most,
            size => size.min(most) - 1 - u64::from((size.min(most) - 1).is_multiple_of(16)),
        };
        let m = if self.m > 1 { (self.m - 1).min(263) } else { self.m };
        let ragged = QgemmProblem { m, n: cut(self.n, 272), k: cut(self.k, 304), ..*self };
        (ragged != *self && m * ragged.n * ragged.k > 0).then_some(ragged)
    }

    fn work(&self) -> Work {
        let (m, n, k) = (self.m as f64, self.n as f64, self.k as f64);
        let factors = |(sizes, _): (Vec<u64>, _)| 4.0 * sizes.iter().product::<u64>() as f64;
        let scales = if self.scale == Scale::None { 0.0 } else { factors(self.a_scales()) + factors(self.b_scales()) };
        Work { flops: 2.0 * m * n * k, bytes: m * k + k * n + m * n * self.out.bytes() as f64 + scales }
    }

    fn dtype(&self) -> DType {
        self.dtype
    }

    fn floor(&self, ceilings: &Ceilings, cold: bool) -> Option<f64> {
        ceilings.floor_of_bytes(self.work(), cold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qgemm::Qgemm;
    use std::collections::BTreeMap;
    use warplap_core::op::Op;

    #[test]
    fn a_problem_reads_back_what_it_prints() {
        for text in [
            "qgemm:m=16,n=4096,k=8192,dtype=f8e4m3,out=bf16,scale=tensor",
            "qgemm:m=1,n=7,k=3,dtype=f8e4m3,out=f32,scale=row,fast=true",
            "qgemm:m=100,n=300,k=500,dtype=f8e4m3,out=f16,scale=block",
            "qgemm:m=5,n=6,k=7,dtype=f8e4m3,out=f16,scale=none",
            "qgemm:m=64,n=64,k=64,dtype=i8,out=i32,scale=none",
        ] {
            assert_eq!(Qgemm::text(&Qgemm::parse(text).unwrap()), text);
        }
        assert_eq!(Qgemm::parse("m=5,n=6,k=7,dtype=i8").unwrap(), QgemmProblem::int8(5, 6, 7));
        let usual = QgemmProblem::fp8(5, 6, 7, DType::Bf16, Scale::Tensor);
        assert_eq!(Qgemm::parse("m=5,n=6,k=7").unwrap(), usual);
    }

    #[test]
    fn what_does_not_go_together_is_refused_with_the_field_and_what_does() {
        for (rest, field, remedy) in [
            ("dtype=f32", "dtype", "f8e4m3 or i8"),
            ("dtype=i8,out=f32", "out", "i32"),
            ("dtype=i8,scale=row", "scale", "none"),
            ("dtype=i8,fast=true", "fast", "exact"),
            ("out=i32", "out", "bf16, f16 or f32"),
            ("scale=column", "scale", "block"),
            ("scale=block,fast=true", "fast", "false"),
        ] {
            let said = Qgemm::parse(&format!("m=8,n=8,k=8,{rest}")).unwrap_err().to_string();
            assert!(said.contains(&format!("'{field}'")) && said.contains(remedy), "{rest}: {said}");
        }
    }

    #[test]
    fn a_ragged_problem_is_smaller_and_takes_the_same_kernels() {
        for (m, n, k) in [(1, 16, 16), (4096, 4096, 4096), (16, 8192, 128), (100, 77, 1000), (17, 33, 65), (5, 1, 1)] {
            let p = QgemmProblem::fp8(m, n, k, DType::Bf16, Scale::Block);
            if let Some(ragged) = p.ragged() {
                assert_eq!(ragged.is_even(), p.is_even(), "{p:?} {ragged:?}");
                assert!(ragged.m <= m && ragged.n <= n && ragged.k <= k);
            }
            let bucket = Bucket::PowerOfTwo;
            assert_eq!(p.representative(&bucket).is_even(), p.is_even(), "{p:?}");
        }
        assert_eq!(QgemmProblem::int8(4096, 4096, 4096).ragged(), Some(QgemmProblem::int8(263, 272, 304)));
    }

    #[test]
    fn the_floor_is_that_of_twice_the_half_types_or_four_times_f32() {
        let p = QgemmProblem::int8(1000, 1000, 1000);
        let of = |rates: &[(DType, f64)]| {
            let flops = BTreeMap::from_iter(rates.iter().copied());
            p.floor(&Ceilings { flops, ..Ceilings::default() }, false)
        };
        assert_eq!(of(&[(DType::Bf16, 1e12), (DType::F32, 1e11)]), Some(1e-3));
        assert_eq!(of(&[(DType::Bf16, 1e12), (DType::F32, 1e12)]), Some(5e-4));
        assert_eq!(of(&[]), None);
    }
}
