//! The facts of one dense product.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use warplap_core::bucket::Bucket;
use warplap_core::dtype::DType;
use warplap_core::problem::{FieldReader, Fields, Problem, ProblemError};
use warplap_core::roofline::Work;

/// The order of a matrix in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Rows are contiguous.
    #[default]
    Row,
    /// Columns are contiguous.
    Col,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Layout::Row { "row" } else { "col" })
    }
}

impl FromStr for Layout {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "row" => Ok(Layout::Row),
            "col" => Ok(Layout::Col),
            _ => Err(()),
        }
    }
}

/// What kind of product it is: a vector on one side makes it a matter of memory, not of arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Matrix times matrix.
    General,
    /// One row times a matrix.
    VecMat,
    /// A matrix times one column.
    MatVec,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::General => "general",
            Kind::VecMat => "vecmat",
            Kind::MatVec => "matvec",
        })
    }
}

/// The facts of C (m×n) = A (m×k) · B (k×n).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemmProblem {
    /// Rows of A and C.
    pub m: u64,
    /// Columns of B and C.
    pub n: u64,
    /// Columns of A, rows of B.
    pub k: u64,
    /// Type of A, B and C in memory; sums are kept in f32.
    pub dtype: DType,
    /// Order of A.
    pub a: Layout,
    /// Order of B.
    pub b: Layout,
    /// Elements from one row (column) of A to the next.
    pub lda: u64,
    /// Elements from one row (column) of B to the next.
    pub ldb: u64,
    /// Elements from one row of C to the next.
    pub ldc: u64,
    /// The largest power of two up to 64 that divides every buffer's address in bytes.
    pub align: u64,
}

/// Three words instead of ten fields: every call of a known problem hashes it.
impl Hash for GemmProblem {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Sizes have at most 21 bits (`MAX_SIZE`); larger ones only share a hash, they are still not equal.
        state.write_u64(self.m ^ self.n << 21 ^ self.k << 42);
        state.write_u64(self.lda ^ self.ldb << 21 ^ self.ldc << 42);
        state.write_u64(self.align ^ (self.dtype as u64) << 8 ^ (self.a as u64) << 12 ^ (self.b as u64) << 13);
    }
}

impl GemmProblem {
    /// A product of row-major matrices without padding.
    pub fn new(m: u64, n: u64, k: u64, dtype: DType) -> Self {
        GemmProblem { m, n, k, dtype, a: Layout::Row, b: Layout::Row, lda: k, ldb: n, ldc: n, align: 64 }
    }

    /// The same product with A and B in other orders, without padding.
    pub fn with_layouts(mut self, a: Layout, b: Layout) -> Self {
        (self.a, self.b) = (a, b);
        (self.lda, self.ldb) = self.packed();
        self
    }

    fn packed(&self) -> (u64, u64) {
        let pick = |layout, row, col| if layout == Layout::Row { row } else { col };
        (pick(self.a, self.k, self.m), pick(self.b, self.n, self.k))
    }

    /// What kind of product it is.
    pub fn kind(&self) -> Kind {
        match (self.m, self.n) {
            (1, _) => Kind::VecMat,
            (_, 1) => Kind::MatVec,
            _ => Kind::General,
        }
    }

    /// Elements A spans.
    pub fn a_len(&self) -> usize {
        let (lines, line) = if self.a == Layout::Row { (self.m, self.k) } else { (self.k, self.m) };
        span(lines, line, self.lda)
    }

    /// Elements B spans.
    pub fn b_len(&self) -> usize {
        let (lines, line) = if self.b == Layout::Row { (self.k, self.n) } else { (self.n, self.k) };
        span(lines, line, self.ldb)
    }

    /// Elements C spans.
    pub fn c_len(&self) -> usize {
        span(self.m, self.n, self.ldc)
    }

    /// Whether no matrix has padding.
    pub fn is_packed(&self) -> bool {
        (self.lda, self.ldb) == self.packed() && self.ldc == self.n
    }
}

fn span(lines: u64, line: u64, ld: u64) -> usize {
    ((lines.max(1) - 1) * ld + line) as usize
}

/// The largest total of one matrix: 2^31 elements.
const MAX_ELEMENTS: u64 = 1 << 31;

impl Problem for GemmProblem {
    const FIELDS: &'static [&'static str] = &["m", "n", "k", "dtype", "a", "b", "lda", "ldb", "ldc", "align"];

    fn fields(&self) -> Fields {
        let (lda, ldb) = self.packed();
        Fields::new()
            .with("m", self.m)
            .with("n", self.n)
            .with("k", self.k)
            .with("dtype", self.dtype)
            .with_unless("a", self.a, Layout::Row)
            .with_unless("b", self.b, Layout::Row)
            .with_unless("lda", self.lda, lda)
            .with_unless("ldb", self.ldb, ldb)
            .with_unless("ldc", self.ldc, self.n)
            .with_unless("align", self.align, 64)
    }

    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        let (m, n, k) = (fields.size("m")?, fields.size("n")?, fields.size("k")?);
        let dtype = fields.word_or("dtype", "one of f32, f16, bf16", DType::F32)?;
        if !matches!(dtype, DType::F32 | DType::F16 | DType::Bf16) {
            return Err(ProblemError::value("dtype", dtype, "one of f32, f16, bf16"));
        }
        let a = fields.word_or("a", "row or col", Layout::Row)?;
        let b = fields.word_or("b", "row or col", Layout::Row)?;
        let mut p = GemmProblem::new(m, n, k, dtype).with_layouts(a, b);
        for (name, ld) in [("lda", &mut p.lda), ("ldb", &mut p.ldb), ("ldc", &mut p.ldc)] {
            let packed = *ld;
            *ld = fields.size_or(name, packed)?;
            if *ld < packed {
                return Err(ProblemError::value(name, *ld, format!("at least {packed}, the length of one line")));
            }
        }
        p.align = fields.size_or("align", 64)?;
        if !p.align.is_power_of_two() || p.align > 64 || p.align < dtype.bytes() as u64 {
            return Err(ProblemError::value("align", p.align, "a power of two from the element's bytes to 64"));
        }
        for (field, (len, what)) in [("m", (p.a_len(), "A")), ("k", (p.b_len(), "B")), ("n", (p.c_len(), "C"))] {
            if len as u64 > MAX_ELEMENTS {
                return Err(ProblemError::value(field, len, format!("at most {MAX_ELEMENTS} elements in {what}")));
            }
        }
        Ok(p)
    }

    fn key_fields(&self, bucket: &Bucket) -> Fields {
        let r = self.representative(bucket);
        // How the leading dimensions lie decides cache conflicts and vector loads, their exact values do not.
        let factor = |ld: u64| (ld * self.dtype.bytes() as u64).trailing_zeros().min(12);
        let strides = [self.lda, self.ldb, self.ldc].map(|ld| factor(ld).to_string()).join("/");
        Fields::new()
            .with("kind", self.kind())
            .with("m", r.m)
            .with("n", r.n)
            .with("k", r.k)
            .with("dtype", self.dtype)
            .with("a", self.a)
            .with("b", self.b)
            .with("padded", !self.is_packed())
            .with("strides", strides)
            .with("align", self.align)
    }

    fn representative(&self, bucket: &Bucket) -> Self {
        if bucket.is_exact() {
            return *self;
        }
        // A vector stays a vector: its kind decides who may race.
        let round = |name, size| {
            if size == 1 { 1 } else { bucket.round(name, size) }
        };
        let mut r = GemmProblem::new(round("m", self.m), round("n", self.n), round("k", self.k), self.dtype)
            .with_layouts(self.a, self.b);
        r.align = self.align;
        r
    }

    fn work(&self) -> Work {
        let (m, n, k) = (self.m as f64, self.n as f64, self.k as f64);
        Work { flops: 2.0 * m * n * k, bytes: (m * k + k * n + m * n) * self.dtype.bytes() as f64 }
    }

    fn dtype(&self) -> DType {
        self.dtype
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::Gemm;
    use warplap_core::key::Key;
    use warplap_core::measure::Policy;
    use warplap_core::op::Op;

    #[test]
    fn a_problem_reads_back_what_it_prints() {
        for text in
            ["gemm:m=1,n=2,k=3,dtype=f32", "gemm:m=64,n=8,k=16,dtype=bf16,a=col,b=col,lda=100,ldb=17,ldc=9,align=16"]
        {
            assert_eq!(Gemm::text(&Gemm::parse(text).unwrap()), text);
        }
    }

    #[test]
    fn bad_problems_name_the_field() {
        for (text, field) in [
            ("gemm:m=0,n=1,k=1", "'m'"),
            ("gemm:m=1,n=1", "'k'"),
            ("gemm:n=1,k=1", "'m'"),
            ("gemm:m=1,n=1,kk=1", "'kk'"),
            ("gemm:m=4,n=4,k=4,lda=3", "'lda'"),
            ("gemm:m=4,n=4,k=4,dtype=f8", "'dtype'"),
            ("gemm:m=1048576,n=1,k=1048576", "'m'"),
            ("gemm:m=4,n=4,k=4,align=3", "'align'"),
        ] {
            let error = Gemm::parse(text).unwrap_err().to_string();
            assert!(error.contains(field) && error.contains("expected"), "{text}: {error}");
        }
    }

    #[test]
    fn every_field_that_matters_changes_the_key() {
        let key = |text: &str, bucket: &Bucket| Key::of::<Gemm>(&Gemm::parse(text).unwrap(), bucket, Policy::default());
        let plain = "gemm:m=64,n=64,k=64,dtype=f32";
        for other in [
            "gemm:m=65,n=64,k=64,dtype=f32",
            "gemm:m=64,n=65,k=64,dtype=f32",
            "gemm:m=64,n=64,k=65,dtype=f32",
            "gemm:m=64,n=64,k=64,dtype=f16",
            "gemm:m=64,n=64,k=64,dtype=f32,a=col",
            "gemm:m=64,n=64,k=64,dtype=f32,b=col",
            "gemm:m=64,n=64,k=64,dtype=f32,lda=65",
            "gemm:m=64,n=64,k=64,dtype=f32,ldc=96",
            "gemm:m=64,n=64,k=64,dtype=f32,align=4",
        ] {
            assert_ne!(key(plain, &Bucket::Exact), key(other, &Bucket::Exact), "{other}");
        }
        assert_eq!(key("gemm:m=63,n=64,k=64", &Bucket::PowerOfTwo), key("gemm:m=60,n=64,k=64", &Bucket::PowerOfTwo));
        assert_ne!(key("gemm:m=1,n=64,k=64", &Bucket::PowerOfTwo), key("gemm:m=2,n=64,k=64", &Bucket::PowerOfTwo));
    }

    proptest::proptest! {
        #[test]
        fn any_legal_problem_reads_back_what_it_prints(
            (m, n, k) in (1u64..3000, 1u64..3000, 1u64..3000),
            pads in proptest::array::uniform3(0u64..70),
            (dtype, a, b, align) in (0usize..3, 0usize..2, 0usize..2, 2u32..7),
        ) {
            let layout = |i| [Layout::Row, Layout::Col][i];
            let mut p = GemmProblem::new(m, n, k, [DType::F32, DType::F16, DType::Bf16][dtype])
                .with_layouts(layout(a), layout(b));
            p.lda += pads[0];
            p.ldb += pads[1];
            p.ldc += pads[2];
            p.align = 1 << align;
            proptest::prop_assert_eq!(Gemm::parse(&Gemm::text(&p)).unwrap(), p);
            let pow2 = p.representative(&Bucket::PowerOfTwo);
            proptest::prop_assert!(pow2.m >= p.m && pow2.n >= p.n && pow2.k >= p.k);
            proptest::prop_assert_eq!(pow2.kind(), p.kind());
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "gemm:[mnkabld=,0-9rowcfp:-]{0,60}") {
            let _ = Gemm::parse(&text);
        }
    }
}
