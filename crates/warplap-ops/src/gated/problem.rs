//! The facts of one activation, joined with another tensor or alone.

use warplap_core::bucket::Bucket;
use warplap_core::dtype::DType;
use warplap_core::problem::{FieldReader, Fields, MAX_SIZE, Problem, ProblemError};
use warplap_core::roofline::Work;

use crate::gemm::{Activation, Join};

/// The facts of y = act(a), joined with b, rows×n. Rows of y lie one after another without padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GatedProblem {
    /// Rows.
    pub rows: u64,
    /// Elements of a row of y.
    pub n: u64,
    /// Type of all buffers; arithmetic is in f32.
    pub dtype: DType,
    /// What is done to a.
    pub act: Activation,
    /// How b is taken in then.
    pub join: Join,
    /// Elements from a row of a to the next.
    pub lda: u64,
    /// Elements from a row of b to the next; n where there is none.
    pub ldb: u64,
}

/// The largest span of one buffer: 2^31 elements.
const MAX_ELEMENTS: u64 = 1 << 31;

impl GatedProblem {
    /// Elements of y.
    pub fn len(&self) -> usize {
        (self.rows * self.n) as usize
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Problem for GatedProblem {
    type Op = super::Gated;

    const FIELDS: &'static [&'static str] = &["rows", "n", "dtype", "act", "join", "lda", "ldb"];

    fn fields(&self) -> Fields {
        Fields::new()
            .with("rows", self.rows)
            .with("n", self.n)
            .with("dtype", self.dtype)
            .with("act", self.act)
            .with_unless("join", self.join, Join::Mul)
            .with_unless("lda", self.lda, self.n)
            .with_unless("ldb", self.ldb, self.n)
    }

    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        let (rows, n) = (fields.size("rows")?, fields.size("n")?);
        let expected = "one of f32, f16, bf16";
        let dtype = fields.word_or("dtype", expected, DType::F32)?;
        if !matches!(dtype, DType::F32 | DType::F16 | DType::Bf16) {
            return Err(ProblemError::value("dtype", dtype, expected));
        }
        let act = fields.word_or("act", Activation::WORDS, Activation::Silu)?;
        let join = fields.word_or("join", Join::WORDS, Join::Mul)?;
        let mut stride = |name: &str| {
            let ld = fields.word_or(name, "a number of elements", n)?;
            match ld >= n && ld.checked_mul(rows).is_some_and(|all| all <= MAX_ELEMENTS) {
                true => Ok(ld),
                false => {
                    let expected = format!("at least {n}, and {MAX_ELEMENTS} at most in all {rows} rows");
                    Err(ProblemError::value(name, ld, expected))
                }
            }
        };
        let p = GatedProblem { rows, n, dtype, act, join, lda: stride("lda")?, ldb: stride("ldb")? };
        match p.join == Join::None && p.ldb != p.n {
            true => Err(ProblemError::value("ldb", p.ldb, "left out with join=none: there is no b")),
            false => Ok(p),
        }
    }

    fn key_fields(&self, bucket: &Bucket) -> Fields {
        // A row's length decides how it is cut into vectors: it is never rounded.
        self.representative(bucket).fields()
    }

    fn representative(&self, bucket: &Bucket) -> Self {
        let most = MAX_SIZE.min(MAX_ELEMENTS / self.lda.max(self.ldb).max(1)).max(self.rows);
        GatedProblem { rows: bucket.round_changing("rows", self.rows).min(most), ..*self }
    }

    fn ragged(&self) -> Option<Self> {
        // No whole number of blocks.
        (self.rows > 13).then_some(GatedProblem { rows: 13, ..*self })
    }

    fn work(&self) -> Work {
        let all = self.len() as f64;
        let tensors = if self.join == Join::None { 2.0 } else { 3.0 };
        Work { flops: 8.0 * all, bytes: tensors * all * self.dtype.bytes() as f64 }
    }

    fn dtype(&self) -> DType {
        self.dtype
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gated::Gated;
    use warplap_core::op::Op;

    #[test]
    fn a_problem_reads_back_what_it_prints() {
        for text in [
            "gated:rows=4096,n=14336,dtype=bf16,act=silu",
            "gated:rows=7,n=33,dtype=f16,act=gelu_tanh,lda=66,ldb=40",
            "gated:rows=7,n=33,dtype=f16,act=none,join=add,ldb=40",
            "gated:rows=7,n=33,dtype=f32,act=tanh,join=none,lda=40",
        ] {
            assert_eq!(Gated::text(&Gated::parse(text).unwrap()), text);
        }
        let p = Gated::parse("rows=10,n=100,dtype=f16").unwrap();
        assert_eq!((p.act, p.join, p.lda, p.work().bytes), (Activation::Silu, Join::Mul, 100, 6000.0));
        assert_eq!(Gated::parse("rows=10,n=100,dtype=f16,join=none").unwrap().work().bytes, 4000.0);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (fields, field) in [
            ("rows=1,n=1,act=swish", "'act'"),
            ("rows=1,n=8,lda=7", "'lda'"),
            ("rows=1,n=8,join=sub", "'join'"),
            ("rows=1,n=8,join=none,ldb=9", "'ldb'"),
            ("rows=1048576,n=4096", "'lda'"),
            ("rows=1,n=8,ldb=99999999999", "'ldb'"),
            ("rows=1,n=1,dtype=f64", "'dtype'"),
        ] {
            let error = Gated::parse(fields).unwrap_err().to_string();
            assert!(error.contains(field), "{fields}: {error}");
        }
    }
}
