//! The facts of one block-sparse product: shapes, block size, how many blocks there are and how unevenly they lie.

use warplap_core::bucket::Bucket;
use warplap_core::dtype::DType;
use warplap_core::problem::{FieldReader, Fields, MAX_SIZE, Problem, ProblemError};
use warplap_core::roofline::{Ceilings, Work};

use super::factor::Factor;
use super::pattern::Pattern;
use super::validate::{BsrError, check_rows};
use crate::gemm::Layout;

/// The facts of C (m×n) = alpha · A (m×k, in blocks) · B (k×n) + beta · C. Statistics are kept as counts, so that two
/// problems are the same exactly when their text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BsrProblem {
    /// Rows of A and C.
    pub m: u64,
    /// Columns of A, rows of B.
    pub k: u64,
    /// Columns of B and C.
    pub n: u64,
    /// Rows of one block.
    pub bs: u64,
    /// Columns of one block; as many as rows unless said.
    pub bc: u64,
    /// Blocks that are stored.
    pub nnz: u64,
    /// Blocks of the fullest block row.
    pub row_max: u64,
    /// Type of the values and B in memory; sums are kept in f32. C has it too, but for products of f8e4m3.
    pub dtype: DType,
    /// Order of B.
    pub b: Layout,
    /// Order of C and of the addend.
    pub c: Layout,
    /// What the product is multiplied with.
    pub alpha: Factor,
    /// What the addend is multiplied with; there is none where this is 0.
    pub beta: Factor,
    /// Whether the addend is C's own former elements, where beta is not 0; otherwise it is an argument of its own.
    pub in_place: bool,
    /// Whether the addend is a bias: one element for each row of C, the same for all columns.
    pub bias: bool,
    /// Whether blocks are stored turned and elsewhere: the indices are those of A, and block `i` of A is the transpose
    /// of stored block `place[i]`. So Aᵀ·B is this product over the index of the transposed pattern.
    pub turned: bool,
    /// Whether the factors of an f32 product may be rounded to tf32 (eleven bits); sums are kept in f32 all the same.
    pub tf32: bool,
    /// How raced inputs are drawn. No part of the key: a user's own matrix has no such name.
    pub pattern: Pattern,
}

/// The largest total of one matrix in memory: 2^31 elements.
const MAX_ELEMENTS: u64 = 1 << 31;

const DTYPES: &str = "one of f32, f16, bf16, f8e4m3";

const BS: &str = "a multiple of 8 from 8 to 128";

impl BsrProblem {
    /// A product whose blocks lie evenly and at random; `density` is the share of blocks that are stored.
    pub fn new(m: u64, k: u64, n: u64, bs: u64, density: f64, dtype: DType) -> Result<Self, ProblemError> {
        shape((m, k, n), (bs, bs))?;
        Self::plain((m, k, n), (bs, bs), dtype).filled(density, None)
    }

    /// The problem of a real matrix, from its row pointers (`m / bs + 1` of them).
    pub fn of(shape: (u64, u64, u64), bs: u64, dtype: DType, b: Layout, row_ptr: &[i32]) -> Result<Self, BsrError> {
        Self::of_blocks(shape, (bs, bs), dtype, b, row_ptr)
    }

    /// The same for blocks of so many rows by so many columns.
    pub fn of_blocks(
        (m, k, n): (u64, u64, u64),
        (bs, bc): (u64, u64),
        dtype: DType,
        b: Layout,
        row_ptr: &[i32],
    ) -> Result<Self, BsrError> {
        shape((m, k, n), (bs, bc))?;
        along_k(dtype, b)?;
        let (nnz, row_max) = check_rows(row_ptr, (m / bs) as usize, (k / bc) as usize)?;
        let (nnz, row_max) = (nnz as u64, row_max as u64);
        let p = BsrProblem { nnz, row_max, b, ..Self::plain((m, k, n), (bs, bc), dtype) };
        p.bounded()?;
        Ok(p)
    }

    fn plain((m, k, n): (u64, u64, u64), (bs, bc): (u64, u64), dtype: DType) -> Self {
        BsrProblem {
            m,
            k,
            n,
            bs,
            bc,
            nnz: 0,
            row_max: 0,
            dtype,
            b: usual_order(dtype),
            c: Layout::Row,
            alpha: Factor::ONE,
            beta: Factor::ZERO,
            in_place: false,
            bias: false,
            turned: false,
            tf32: false,
            pattern: Pattern::Uniform,
        }
    }

    /// Type of C and of the addend: bf16 for products of f8e4m3, whose alpha stands for the factors that make codes of A
    /// and B the numbers they stand for.
    pub fn out(&self) -> DType {
        if self.is_bytes() { DType::Bf16 } else { self.dtype }
    }

    /// Whether it is a product of f8e4m3.
    pub fn is_bytes(&self) -> bool {
        self.dtype == DType::F8E4m3
    }

    /// Whether there is an addend.
    pub fn adds(&self) -> bool {
        self.beta != Factor::ZERO
    }

    /// Whether anything happens to the sums before they are stored.
    pub fn is_scaled(&self) -> bool {
        self.adds() || self.alpha != Factor::ONE
    }

    /// Whether the sizes are what every kernel relies on; the fields are open, so kernels ask again.
    pub(super) fn check(&self) -> Result<(), ProblemError> {
        shape((self.m, self.k, self.n), (self.bs, self.bc))?;
        along_k(self.dtype, self.b)
    }

    /// Block rows.
    pub fn rows(&self) -> usize {
        (self.m / self.bs) as usize
    }

    /// Block columns.
    pub fn columns(&self) -> usize {
        (self.k / self.bc) as usize
    }

    /// Whether blocks are as wide as they are tall.
    pub fn is_square(&self) -> bool {
        self.bs == self.bc
    }

    /// The share of blocks that are stored.
    pub fn density(&self) -> f64 {
        self.nnz as f64 / self.all()
    }

    /// Blocks of the fullest block row over those of the mean one; 1 for an empty matrix.
    pub fn imbalance(&self) -> f64 {
        if self.nnz == 0 { 1.0 } else { self.row_max as f64 / self.mean() }
    }

    /// Elements of the stored blocks.
    pub fn values_len(&self) -> usize {
        (self.nnz * self.bs * self.bc) as usize
    }

    fn all(&self) -> f64 {
        self.rows() as f64 * self.columns() as f64
    }

    fn mean(&self) -> f64 {
        self.nnz as f64 / self.rows() as f64
    }

    fn blocks_at(&self, density: f64) -> u64 {
        // A matrix that is asked to hold something holds something.
        ((density * self.all()).round() as u64).max(u64::from(density > 0.0))
    }

    fn even_max(&self) -> u64 {
        self.pattern.even_max(self.rows(), self.columns(), self.nnz as usize) as u64
    }

    fn row_max_at(&self, imbalance: f64) -> u64 {
        ((imbalance * self.mean()).round() as u64).max(self.nnz.div_ceil(self.rows() as u64))
    }

    /// This problem with as many blocks as a density and an imbalance say.
    fn filled(mut self, density: f64, imbalance: Option<f64>) -> Result<Self, ProblemError> {
        let (rows, columns) = (self.rows(), self.columns());
        self.nnz = self.blocks_at(density);
        let room = self.pattern.room(rows, columns, columns) as u64;
        if self.nnz > room {
            let most = room as f64 / self.all();
            let expected = format!("at most {most:.4} for pattern={}", self.pattern);
            return Err(ProblemError::value("density", density, expected));
        }
        self.row_max = imbalance.map_or_else(|| self.even_max(), |i| self.row_max_at(i));
        let most = self.nnz.min(columns as u64);
        if self.row_max > most {
            let expected = format!("at most {:.4}, a full row over the mean one", most as f64 / self.mean());
            return Err(ProblemError::value("imbalance", imbalance.unwrap_or(1.0), expected));
        }
        if (self.pattern.room(rows, columns, self.row_max as usize) as u64) < self.nnz {
            let least = self.even_max() as f64 / self.mean();
            let expected = format!("about {least:.4} or more for pattern={} at this density", self.pattern);
            return Err(ProblemError::value("imbalance", imbalance.unwrap_or(1.0), expected));
        }
        self.bounded()?;
        Ok(self)
    }

    fn bounded(&self) -> Result<(), ProblemError> {
        let sizes =
            [("density", self.values_len() as u64, "blocks"), ("k", self.k * self.n, "B"), ("m", self.m * self.n, "C")];
        for (field, len, what) in sizes {
            if len > MAX_ELEMENTS {
                return Err(ProblemError::value(field, len, format!("at most {MAX_ELEMENTS} elements in {what}")));
            }
        }
        Ok(())
    }
}

/// The order of B where none is said.
fn usual_order(dtype: DType) -> Layout {
    if dtype == DType::F8E4m3 { Layout::Col } else { Layout::Row }
}

/// Tensor cores take bytes along k alone.
fn along_k(dtype: DType, b: Layout) -> Result<(), ProblemError> {
    match (dtype, b) {
        (DType::F8E4m3, Layout::Row) => {
            Err(ProblemError::value("b", b, "col with dtype=f8e4m3: tensor cores take bytes along k"))
        }
        _ => Ok(()),
    }
}

fn shape((m, k, n): (u64, u64, u64), (bs, bc): (u64, u64)) -> Result<(), ProblemError> {
    for (field, size) in [("bs", bs), ("bc", bc)] {
        if !(8..=128).contains(&size) || !size.is_multiple_of(8) {
            return Err(ProblemError::value(field, size, BS));
        }
    }
    let across = if bc == bs { "bs" } else { "bc" };
    for (field, size, name, block) in [("m", m, "bs", bs), ("k", k, across, bc), ("n", n, "", 1)] {
        if !(1..=MAX_SIZE).contains(&size) {
            return Err(ProblemError::value(field, size, format!("a whole number from 1 to {MAX_SIZE}")));
        }
        if !size.is_multiple_of(block) {
            let near = size.next_multiple_of(block);
            let expected = format!("a multiple of {name}={block}: pad to {near}, or choose a {name} that divides it");
            return Err(ProblemError::value(field, size, expected));
        }
    }
    Ok(())
}

/// The shortest decimal text that still reads as the same thing.
fn shortest(exact: f64, same: impl Fn(f64) -> bool) -> String {
    let texts = (0..=17).map(|digits| format!("{exact:.digits$}"));
    texts.into_iter().find(|t| t.parse().is_ok_and(&same)).unwrap_or_else(|| exact.to_string())
}

/// Half powers of two: `2^-3`, `2^-3.5`.
fn density_class(density: f64) -> String {
    if density == 0.0 { "empty".into() } else { format!("2^{}", (2.0 * density.log2()).round() / 2.0 + 0.0) }
}

fn imbalance_class(imbalance: f64) -> &'static str {
    // Rows that differ by the one block that rounding leaves are even.
    match imbalance {
        i if i < 1.25 => "1",
        i if i <= 2.0 => "2",
        i if i <= 4.0 => "4",
        i if i <= 8.0 => "8",
        _ => "more",
    }
}

impl Problem for BsrProblem {
    type Op = super::Bsr;

    const FIELDS: &'static [&'static str] = &[
        "m",
        "k",
        "n",
        "bs",
        "bc",
        "density",
        "dtype",
        "imbalance",
        "pattern",
        "b",
        "c",
        "alpha",
        "beta",
        "inplace",
        "bias",
        "turned",
        "tf32",
    ];

    fn fields(&self) -> Fields {
        let density = shortest(self.density(), |d| (0.0..=1.0).contains(&d) && self.blocks_at(d) == self.nnz);
        let fields = Fields::new()
            .with("m", self.m)
            .with("k", self.k)
            .with("n", self.n)
            .with("bs", self.bs)
            .with_unless("bc", self.bc, self.bs)
            .with("density", density)
            .with("dtype", self.dtype);
        let fields = if self.row_max == self.even_max() {
            fields
        } else {
            let same = |i: f64| i >= 1.0 && self.row_max_at(i) == self.row_max;
            fields.with("imbalance", shortest(self.imbalance(), same))
        };
        fields
            .with_unless("pattern", self.pattern, Pattern::Uniform)
            .with_unless("b", self.b, Layout::Row)
            .with_unless("c", self.c, Layout::Row)
            .with_unless("alpha", self.alpha, Factor::ONE)
            .with_unless("beta", self.beta, Factor::ZERO)
            .with_unless("inplace", self.in_place, false)
            .with_unless("bias", self.bias, false)
            .with_unless("turned", self.turned, false)
            .with_unless("tf32", self.tf32, false)
    }

    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        let (m, k, n) = (fields.size("m")?, fields.size("k")?, fields.size("n")?);
        let bs = fields.size("bs")?;
        let bc = if fields.has("bc") { fields.size("bc")? } else { bs };
        shape((m, k, n), (bs, bc))?;
        let dense = fields.has("density");
        let density = fields.number_or("density", 0.0, 1.0, 0.0)?;
        if !dense {
            let expected = "the share of blocks that are stored, from 0 to 1".to_string();
            return Err(ProblemError::Missing { field: "density".into(), expected });
        }
        let dtype = fields.word_or("dtype", DTYPES, DType::F32)?;
        if !matches!(dtype, DType::F32 | DType::F16 | DType::Bf16 | DType::F8E4m3) {
            return Err(ProblemError::value("dtype", dtype, DTYPES));
        }
        let skewed = fields.has("imbalance");
        let imbalance = fields.number_or("imbalance", 1.0, MAX_SIZE as f64, 1.0)?;
        let pattern = fields.word_or("pattern", Pattern::EXPECTED, Pattern::Uniform)?;
        let b = fields.word_or("b", "row or col", usual_order(dtype))?;
        along_k(dtype, b)?;
        let c = fields.word_or("c", "row or col", Layout::Row)?;
        let alpha = fields.word_or("alpha", "a finite number", Factor::ONE)?;
        let bias = fields.word_or("bias", "true or false", false)?;
        // A bias that is not multiplied with anything is the usual one.
        let beta = fields.word_or("beta", "a finite number", if bias { Factor::ONE } else { Factor::ZERO })?;
        let in_place = fields.word_or("inplace", "true or false", false)?;
        if bias && (in_place || beta == Factor::ZERO) {
            let expected = "false, or a beta other than 0 and not in place: the bias is what is added";
            return Err(ProblemError::value("bias", bias, expected));
        }
        if in_place && beta == Factor::ZERO {
            return Err(ProblemError::value(
                "inplace",
                in_place,
                "false, or a beta other than 0: nothing is added to C",
            ));
        }
        let turned = fields.word_or("turned", "true or false", false)?;
        let tf32 = fields.word_or("tf32", "true or false", false)?;
        if tf32 && dtype != DType::F32 {
            return Err(ProblemError::value("tf32", tf32, "false, or dtype=f32: only f32 is rounded to tf32"));
        }
        let plain = Self::plain((m, k, n), (bs, bc), dtype);
        let p = BsrProblem { b, c, pattern, alpha, beta, in_place, bias, turned, tf32, ..plain };
        p.filled(density, skewed.then_some(imbalance))
    }

    fn key_fields(&self, bucket: &Bucket) -> Fields {
        let r = self.representative(bucket);
        // The values of the factors change nothing; whether there are any does.
        let scale = if self.is_scaled() { "alpha" } else { "1" };
        Fields::new()
            .with("m", r.m)
            .with("k", r.k)
            .with("n", r.n)
            .with("bs", self.bs)
            .with_unless("bc", self.bc, self.bs)
            .with("dtype", self.dtype)
            .with("b", self.b)
            .with_unless("c", self.c, Layout::Row)
            .with("density", density_class(self.density()))
            .with("imbalance", imbalance_class(self.imbalance()))
            .with_unless("scale", if self.adds() { "beta" } else { scale }, "1")
            .with_unless("inplace", self.in_place, false)
            .with_unless("bias", self.bias, false)
            .with_unless("turned", self.turned, false)
            .with_unless("tf32", self.tf32, false)
    }

    fn representative(&self, bucket: &Bucket) -> Self {
        if bucket.is_exact() {
            return *self;
        }
        let blocks = |name, size: u64, block: u64| {
            bucket.round(name, size).next_multiple_of(block).min(MAX_SIZE / block * block)
        };
        let mut r = *self;
        (r.m, r.k) = (blocks("m", self.m, self.bs), blocks("k", self.k, self.bc));
        // A vector stays a vector: it decides who may race.
        r.n = if self.n == 1 { 1 } else { bucket.round_changing("n", self.n) };
        // Rounding must not leave the legal range; where it does, the problem itself is raced.
        let even = self.row_max == self.even_max();
        r.filled(self.density(), (!even && self.nnz > 0).then(|| self.imbalance())).unwrap_or(*self)
    }

    fn smaller(&self) -> Option<Self> {
        let mut r = *self;
        (r.m, r.k, r.n) = (self.m.min(16 * self.bs), self.k.min(16 * self.bc), self.n.min(32));
        let r = r.filled(self.density(), None).ok()?;
        (r != *self && r.nnz > 0).then_some(r)
    }

    fn work(&self) -> Work {
        let (bc, n) = (self.bc as f64, self.n as f64);
        let values = self.values_len() as f64;
        // At least the columns of the fullest row are needed of B; which others are is not known from counts.
        let needed = self.row_max as f64 * bc * n;
        let indices = 4.0 * (self.nnz as f64 + self.rows() as f64 + 1.0);
        let c = self.m as f64 * n * if self.adds() && !self.bias { 2.0 } else { 1.0 };
        let bytes = (values + needed) * self.dtype.bytes() as f64 + c * self.out().bytes() as f64 + indices;
        Work { flops: 2.0 * values * n, bytes }
    }

    fn floor(&self, ceilings: &Ceilings, cold: bool) -> Option<f64> {
        match ceilings.tf32 {
            Some(rate) if self.tf32 => Some(ceilings.floor_at(self.work(), rate, cold)),
            _ if self.is_bytes() => ceilings.floor_of_bytes(self.work(), cold),
            _ => ceilings.floor(self.work(), self.dtype, cold),
        }
    }

    fn dtype(&self) -> DType {
        self.dtype
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bsr::Bsr;
    use proptest::prelude::*;
    use warplap_core::measure::Policy;
    use warplap_core::op::Op;

    #[test]
    fn a_problem_reads_back_what_it_prints() {
        for text in [
            "bsr:m=4096,k=4096,n=512,bs=64,density=0.125,dtype=f32",
            "bsr:m=4096,k=2048,n=7,bs=32,density=0.1,dtype=bf16,imbalance=4,b=col",
            "bsr:m=1024,k=1024,n=64,bs=16,density=0.3,dtype=f16,pattern=causal",
            "bsr:m=64,k=64,n=1,bs=8,density=0,dtype=f32",
            "bsr:m=64,k=64,n=1,bs=8,density=1,dtype=f32,pattern=banded",
            "bsr:m=64,k=64,n=8,bs=16,density=0.5,dtype=f32,alpha=-0.75,beta=2,turned=true,tf32=true",
            "bsr:m=64,k=64,n=8,bs=16,density=0.5,dtype=f32,c=col,beta=1,bias=true",
            "bsr:m=64,k=96,n=8,bs=16,bc=32,density=0.5,dtype=f32,b=col,c=col",
            "bsr:m=64,k=64,n=8,bs=16,density=0.5,dtype=f32,beta=2,inplace=true",
            "bsr:m=64,k=64,n=8,bs=16,density=0.5,dtype=f8e4m3,b=col,c=col,alpha=0.25,turned=true",
        ] {
            assert_eq!(Bsr::text(&Bsr::parse(text).unwrap()), text);
        }
    }

    proptest! {
        #[test]
        fn any_legal_problem_reads_back_the_same(
            (rows, columns, n) in (1u64..40, 1u64..40, 1u64..600),
            (bs, wide) in (1u64..=16, 1u64..=16),
            density in 0.0f64..=1.0,
            skew in 1.0f64..6.0,
            pattern in prop::sample::select(Pattern::ALL.to_vec()),
        ) {
            let bs = bs * 8;
            let (bs, bc) = (bs, 8 * wide);
            let shape = format!("m={},k={},n={n},bs={bs},bc={bc}", rows * bs, columns * bc);
            let text = format!("{shape},density={density},pattern={pattern}");
            for text in [text.clone(), format!("{text},imbalance={skew}")] {
                if let Ok(p) = Bsr::parse(&text) {
                    prop_assert_eq!(Bsr::parse(&Bsr::text(&p)).unwrap(), p, "{}", Bsr::text(&p));
                    let r = p.representative(&Bucket::PowerOfTwo);
                    prop_assert!(r.m >= p.m && r.m.is_multiple_of(bs) && r.row_max <= r.columns() as u64);
                }
            }
        }
    }

    #[test]
    fn bad_problems_name_the_field_and_the_remedy() {
        for (text, parts) in [
            ("bsr:m=100,k=64,n=1,bs=16,density=0.5", ["'m'", "pad to 112"]),
            ("bsr:m=64,k=65,n=1,bs=16,density=0.5", ["'k'", "multiple of bs=16"]),
            ("bsr:m=64,k=64,n=0,bs=16,density=0.5", ["'n'", "from 1"]),
            ("bsr:m=64,k=64,n=1,bs=12,density=0.5", ["'bs'", "multiple of 8"]),
            ("bsr:m=256,k=256,n=1,bs=256,density=0.5", ["'bs'", "to 128"]),
            ("bsr:m=64,k=64,n=1,bs=16,bc=12,density=0.5", ["'bc'", "multiple of 8"]),
            ("bsr:m=64,k=48,n=1,bs=16,bc=32,density=0.5", ["'k'", "multiple of bc=32"]),
            ("bsr:m=64,k=64,n=1,bs=16,density=0.5,c=up", ["'c'", "row or col"]),
            ("bsr:m=64,k=64,n=1,bs=16,density=nan", ["'density'", "from 0 to 1"]),
            ("bsr:m=64,k=64,n=1,bs=16,density=1.5", ["'density'", "from 0 to 1"]),
            ("bsr:m=64,k=64,n=1,bs=16,density=-0.1", ["'density'", "from 0 to 1"]),
            ("bsr:m=64,k=64,n=1,bs=16", ["'density'", "missing"]),
            ("bsr:m=64,k=64,n=1,bs=16,desnity=1", ["'desnity'", "did you mean 'density'"]),
            ("bsr:m=64,k=64,n=1,bs=16,density=1,imbalance=2", ["'imbalance'", "at most 1"]),
            ("bsr:m=64,k=64,n=1,bs=16,density=0.5,imbalance=0.5", ["'imbalance'", "from 1"]),
            ("bsr:m=256,k=256,n=1,bs=16,density=0.9,pattern=causal", ["'density'", "pattern=causal"]),
            ("bsr:m=64,k=64,n=1,bs=16,density=1,pattern=tartan", ["'pattern'", "banded"]),
            ("bsr:m=64,k=64,n=1,bs=16,density=1,dtype=f64", ["'dtype'", "bf16"]),
            ("bsr:m=64,k=64,n=1,bs=16,density=1,dtype=f8e5m2", ["'dtype'", "f8e4m3"]),
            ("bsr:m=64,k=64,n=1,bs=16,density=1,dtype=f8e4m3,b=row", ["'b'", "col with dtype=f8e4m3"]),
            ("bsr:m=64,k=64,n=1,bs=16,density=1,dtype=f8e4m3,tf32=true", ["'tf32'", "dtype=f32"]),
            ("bsr:m=64,k=64,n=1,bs=16,density=1,b=up", ["'b'", "row or col"]),
            ("bsr:m=64,k=64,n=1,bs=16,density=1,alpha=inf", ["'alpha'", "finite"]),
            ("bsr:m=64,k=64,n=1,bs=16,density=1,alpha=2,inplace=true", ["'inplace'", "beta"]),
            ("bsr:m=64,k=64,n=1,bs=16,density=1,dtype=f16,tf32=true", ["'tf32'", "dtype=f32"]),
            ("bsr:m=1048576,k=1048576,n=1,bs=128,density=1", ["'density'", "elements in blocks"]),
        ] {
            let error = Bsr::parse(text).unwrap_err().to_string();
            assert!(parts.iter().all(|p| error.contains(p)) && error.contains("expected"), "{text}: {error}");
        }
    }

    #[test]
    fn every_field_that_matters_changes_the_key_and_exact_counts_do_not() {
        let key = |text: &str| Bsr::key(&Bsr::parse(text).unwrap(), &Bucket::Exact, Policy::default());
        let plain = "m=2048,k=2048,n=64,bs=32,density=0.125";
        for other in [
            "m=1024,k=2048,n=64,bs=32,density=0.125",
            "m=2048,k=1024,n=64,bs=32,density=0.125",
            "m=2048,k=2048,n=65,bs=32,density=0.125",
            "m=2048,k=2048,n=64,bs=64,density=0.125",
            "m=2048,k=2048,n=64,bs=32,bc=64,density=0.125",
            "m=2048,k=2048,n=64,bs=32,density=0.125,c=col",
            "m=2048,k=2048,n=64,bs=32,density=0.2",
            "m=2048,k=2048,n=64,bs=32,density=0",
            "m=2048,k=2048,n=64,bs=32,density=0.125,imbalance=2",
            "m=2048,k=2048,n=64,bs=32,density=0.125,dtype=f16",
            "m=2048,k=2048,n=64,bs=32,density=0.125,dtype=f8e4m3",
            "m=2048,k=2048,n=64,bs=32,density=0.125,b=col",
            "m=2048,k=2048,n=64,bs=32,density=0.125,alpha=2",
            "m=2048,k=2048,n=64,bs=32,density=0.125,beta=1",
            "m=2048,k=2048,n=64,bs=32,density=0.125,turned=true",
            "m=2048,k=2048,n=64,bs=32,density=0.125,beta=1,inplace=true",
            "m=2048,k=2048,n=64,bs=32,density=0.125,tf32=true",
        ] {
            assert_ne!(key(plain), key(other), "{other}");
        }
        assert_eq!(key(plain), key("m=2048,k=2048,n=64,bs=32,density=0.13"));
        assert_eq!(key(&format!("{plain},alpha=2,beta=3")), key(&format!("{plain},alpha=1,beta=0.5")));
        assert_ne!(key(&format!("{plain},beta=1")), key(&format!("{plain},beta=1,inplace=true")));
        assert_eq!(
            key("m=2048,k=2048,n=64,bs=32,density=0.1,imbalance=3"),
            key("m=2048,k=2048,n=64,bs=32,density=0.1,imbalance=3.5")
        );
    }

    #[test]
    fn the_problem_of_a_matrix_holds_its_counts() {
        let p = BsrProblem::of((32, 64, 5), 16, DType::F32, Layout::Row, &[0, 1, 4]).unwrap();
        assert_eq!((p.nnz, p.row_max, p.imbalance()), (4, 3, 1.5));
        assert!(BsrProblem::of((32, 64, 5), 16, DType::F32, Layout::Row, &[0, 5, 6]).is_err());
        assert!(BsrProblem::of((33, 64, 5), 16, DType::F32, Layout::Row, &[0, 1, 4]).is_err());
    }

    #[test]
    fn bytes_lie_along_k_and_c_has_two_for_an_element() {
        let p = Bsr::parse("m=2048,k=2048,n=512,bs=64,density=0.125,dtype=f8e4m3").unwrap();
        assert_eq!((p.b, p.out(), p.is_bytes()), (Layout::Col, DType::Bf16, true));
        assert_eq!(BsrProblem::new(2048, 2048, 512, 64, 0.125, DType::F8E4m3).unwrap(), p);
        let half = Bsr::parse("m=2048,k=2048,n=512,bs=64,density=0.125,dtype=bf16").unwrap();
        assert_eq!(half.work().flops, p.work().flops);
        let (values, needed) = (p.values_len() as f64, p.row_max as f64 * 64.0 * 512.0);
        assert_eq!(half.work().bytes - p.work().bytes, values + needed);
        let refused = BsrProblem::of((64, 64, 5), 64, DType::F8E4m3, Layout::Row, &[0, 1]).unwrap_err().to_string();
        assert!(refused.contains("'b'") && refused.contains("expected col"), "{refused}");
        let rates = [(DType::Bf16, 1e12), (DType::F32, 1e11)];
        let ceilings = Ceilings { flops: rates.into_iter().collect(), ..Ceilings::default() };
        assert_eq!(p.floor(&ceilings, false), Some(p.work().flops / 2e12));
    }

    #[test]
    fn useful_work_counts_stored_blocks_only() {
        let p = BsrProblem::new(2048, 2048, 512, 64, 0.125, DType::F32).unwrap();
        assert_eq!(p.work().flops, 2.0 * 2048.0 * 2048.0 * 512.0 / 8.0);
        let empty = BsrProblem::new(2048, 2048, 512, 64, 0.0, DType::F32).unwrap();
        assert_eq!(empty.work().flops, 0.0);
    }
}
