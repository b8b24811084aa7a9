//! Products of 8-bit numbers, declared: the facts of a request, the slots of a launch, and how programs name it.

use warplap_core::array::Array;
use warplap_core::bucket::Bucket;
use warplap_core::declare::{declared, problem, words};
use warplap_core::dtype::DType;
use warplap_core::op::{Answer, Op, drawn};
use warplap_core::problem::{Fields, Problem, ProblemError};
use warplap_core::roofline::{Ceilings, Work};
use warplap_core::slot::{Signature, Slot};

use super::answer;

/// Elements along k, and columns of B, that share one factor where factors belong to blocks.
pub const BLOCK: u64 = 128;

words! {
    /// What the factors belong to that make 8-bit numbers the numbers they stand for.
    #[derive(Default)]
    pub enum Scale {
        /// There are none.
        #[default]
        None = "none",
        /// One for A and one for B.
        Tensor = "tensor",
        /// One for each row of A and one for each column of B.
        Row = "row",
        /// One for each 128 elements of a row of A along k, and one for each 128×128 of B.
        Block = "block",
    }
}

problem! {
    /// The facts of C (m×n) = A (m×k) · B (k×n) of 8-bit numbers. A and C are row-major, B is column-major: both
    /// factors lie along k, as tensor cores take bytes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct QgemmProblem {
        /// Rows of A and C.
        pub m: u64 => size(),
        /// Columns of B and C.
        pub n: u64 => size(),
        /// Columns of A, rows of B.
        pub k: u64 => size(),
        /// Type of A and B.
        pub dtype: DType = DType::F8E4m3 => one_of(&[DType::F8E4m3, DType::I8]).shown(),
        /// Type of C: bf16, f16 or f32 for f8e4m3, i32 for i8.
        pub out: DType = outs(dtype)[0] => one_of(outs(dtype)).expecting(OUTS[usize::from(dtype == DType::I8)]).shown(),
        /// What the factors belong to; there are none for i8.
        pub scale: Scale = usual_scale(dtype) => word().shown(),
        /// Whether the tensor cores' own sums, which keep about 14 bits, may run through all of k. Else they are added
        /// up in f32 every 128 elements at the latest.
        pub fast: bool = false => flag(),
    }
}

const OUTS: [&str; 2] = ["bf16, f16 or f32 with dtype=f8e4m3", "i32 with dtype=i8"];

/// What C may be of.
fn outs(dtype: DType) -> &'static [DType] {
    if dtype == DType::I8 { &[DType::I32] } else { &[DType::Bf16, DType::F16, DType::F32] }
}

fn usual_scale(dtype: DType) -> Scale {
    if dtype == DType::I8 { Scale::None } else { Scale::Tensor }
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
    type Op = Qgemm;

    declared!(text);

    fn check(&self) -> Result<(), ProblemError> {
        if self.is_int() && self.scale != Scale::None {
            return Err(ProblemError::value("scale", self.scale, "none with dtype=i8"));
        }
        if self.fast && self.is_int() {
            return Err(ProblemError::value("fast", self.fast, "false with dtype=i8, whose sums are exact"));
        }
        if self.fast && self.scale == Scale::Block {
            let expected = "false with scale=block: a block's factor is applied to its own sum";
            return Err(ProblemError::value("fast", self.fast, expected));
        }
        Ok(())
    }

    fn key_fields(&self, bucket: &Bucket) -> Fields {
        // Which kernels may race hangs on whether lines begin on 16 bytes, which rounded sizes would hide.
        self.representative(bucket).declared_key().with("even", self.is_even())
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

/// The operation C = (scaled A)·(scaled B) of 8-bit numbers.
#[derive(Clone, Copy, Debug)]
pub struct Qgemm;

/// The slots of a product of 8-bit numbers.
pub mod slot {
    /// A, m×k, row-major.
    pub const A: usize = 0;
    /// B, k×n, column-major.
    pub const B: usize = 1;
    /// The factors of A.
    pub const SCALE_A: usize = 2;
    /// The factors of B.
    pub const SCALE_B: usize = 3;
    /// C, m×n, row-major.
    pub const C: usize = 4;
}

/// How many slots there are.
pub const SLOTS: usize = 5;

/// Bytes that divide the addresses of the matrices.
const ALIGN: u64 = 16;

impl Op for Qgemm {
    const NAME: &'static str = "qgemm";

    type Problem = QgemmProblem;

    fn signature(p: &QgemmProblem) -> Signature {
        let scaled = p.scale != Scale::None;
        let factors = |name: &'static str, (shape, strides): (Vec<u64>, Vec<u64>)| {
            Slot::input(name, DType::F32, &shape).strided(&strides).when(scaled)
        };
        Signature(vec![
            Slot::input("a", p.dtype, &[p.m, p.k]).aligned(ALIGN),
            Slot::input("b", p.dtype, &[p.k, p.n]).strided(&[1, p.k]).aligned(ALIGN),
            factors("scale_a", p.a_scales()).aligned(if p.scale == Scale::Block { ALIGN } else { 4 }),
            factors("scale_b", p.b_scales()).aligned(if p.scale == Scale::Block { ALIGN } else { 4 }),
            Slot::output("c", p.out, &[p.m, p.n]).aligned(ALIGN),
        ])
    }

    fn draw(p: &QgemmProblem, rng: &mut fastrand::Rng) -> Vec<Array> {
        let mut inputs = drawn(&Qgemm::signature(p), rng);
        for slot in [slot::SCALE_A, slot::SCALE_B] {
            // Near each other, so that the bound of the largest row is tight for every one; never 1.
            if let Array::F32(factors) = &mut inputs[slot] {
                factors.iter_mut().for_each(|f| *f = 0.3 + 0.1 * *f);
            }
        }
        inputs
    }

    fn answer(p: &QgemmProblem, inputs: &[Array]) -> Vec<Answer> {
        answer::answer(p, inputs)
    }
}

known! {
    /// Products of 8-bit numbers, with factors.
    Qgemm {
        aliases: ["scaled_mm", "int_mm"],
        example: "qgemm:m=1024,n=1024,k=1024,dtype=i8,out=i32,scale=none",
        cpu: "
qgemm:m=512,n=512,k=512,dtype=i8,out=i32,scale=none
qgemm:m=64,n=1024,k=1024,dtype=f8e4m3,out=bf16,scale=tensor
",
        cuda: "
# Square products.
qgemm:m=4096,n=4096,k=4096,dtype=f8e4m3,out=bf16,scale=tensor
qgemm:m=4096,n=4096,k=4096,dtype=f8e4m3,out=bf16,scale=block
qgemm:m=4096,n=4096,k=4096,dtype=i8,out=i32,scale=none
# A layer of a language model, for a batch of tokens.
qgemm:m=64,n=8192,k=8192,dtype=f8e4m3,out=bf16,scale=row
",
    }
}

#[cfg(test)]
#[path = "op_tests.rs"]
mod tests;
