//! The facts of one normalisation of rows.

use std::fmt;
use std::str::FromStr;

use warplap_core::bucket::Bucket;
use warplap_core::dtype::DType;
use warplap_core::problem::{FieldReader, Fields, MAX_SIZE, Problem, ProblemError};
use warplap_core::roofline::Work;

use super::Quant;

/// What a row is divided by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The root of its mean square (RMSNorm).
    #[default]
    Rms,
    /// Its standard deviation, after its mean was taken away (LayerNorm).
    Layer,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Kind::Rms { "rms" } else { "layer" })
    }
}

impl FromStr for Kind {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "rms" => Ok(Kind::Rms),
            "layer" => Ok(Kind::Layer),
            _ => Err(()),
        }
    }
}

/// The facts of y = norm(s) * weight + bias with s = dropout(x + before) + residual, row by row. Rows lie one after
/// another without padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NormProblem {
    /// Rows.
    pub rows: u64,
    /// Elements of one row.
    pub n: u64,
    /// Type of all buffers but codes and their factors; arithmetic and sums are in f32.
    pub dtype: DType,
    /// What a row is divided by.
    pub kind: Kind,
    /// Whether a residual is added first, and the sum written beside the norm.
    pub residual: bool,
    /// Whether each column has a weight.
    pub weight: bool,
    /// Whether each column has a bias.
    pub bias: bool,
    /// Whether each column has a number that is added to x first.
    pub before: bool,
    /// Whether what is normalised is written beside the norm, where anything is done to x before.
    pub sum: bool,
    /// What y is written as.
    pub quant: Quant,
    /// The bits of the f32 that is added under the root.
    eps: u32,
    /// The bits of the f32 share of elements that are dropped before the residual is added.
    dropout: u32,
}

/// The usual number under the root.
const EPS: f32 = 1e-5;

/// The least and the largest: one over the root of the least is far from the end of f32.
const LEAST_EPS: f32 = 1e-20;
const LARGEST_EPS: f32 = 1.0;

/// The largest total of one buffer: 2^31 elements.
const MAX_ELEMENTS: u64 = 1 << 31;

impl NormProblem {
    /// RMSNorm with a weight, and the usual number under the root.
    pub fn new(rows: u64, n: u64, dtype: DType) -> Self {
        let (kind, residual, weight, bias) = (Kind::Rms, false, true, false);
        let (before, dropout) = (false, 0f32.to_bits());
        let (sum, eps) = (true, EPS.to_bits());
        let quant = Quant::None;
        NormProblem { rows, n, dtype, kind, residual, weight, bias, before, sum, quant, eps, dropout }
    }

    /// The share of elements that are dropped.
    pub fn dropout(&self) -> f32 {
        f32::from_bits(self.dropout)
    }

    /// The same problem with another share; `None` where it is not from 0 to below 1.
    pub fn with_dropout(mut self, share: f32) -> Option<Self> {
        self.dropout = (share + 0.0).to_bits();
        (0.0..1.0).contains(&share).then_some(self)
    }

    /// Whether anything is done to x before the norm.
    pub fn has_front(&self) -> bool {
        self.residual || self.before || self.dropout() > 0.0
    }

    /// Whether the sum is written beside the norm.
    pub fn has_sum(&self) -> bool {
        self.sum && self.has_front()
    }

    /// What is added under the root.
    pub fn eps(&self) -> f32 {
        f32::from_bits(self.eps)
    }

    /// The same problem with another number under the root; `None` where it is not from 1e-20 to 1.
    pub fn with_eps(mut self, eps: f32) -> Option<Self> {
        self.eps = eps.to_bits();
        (LEAST_EPS..=LARGEST_EPS).contains(&eps).then_some(self)
    }

    /// Elements of x.
    pub fn len(&self) -> usize {
        (self.rows * self.n) as usize
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Problem for NormProblem {
    type Op = super::Norm;

    const FIELDS: &'static [&'static str] =
        &["rows", "n", "dtype", "kind", "residual", "weight", "bias", "before", "dropout", "sum", "quant", "eps"];

    fn fields(&self) -> Fields {
        Fields::new()
            .with("rows", self.rows)
            .with("n", self.n)
            .with("dtype", self.dtype)
            .with("kind", self.kind)
            .with_unless("residual", self.residual, false)
            .with_unless("weight", self.weight, true)
            .with_unless("bias", self.bias, false)
            .with_unless("before", self.before, false)
            .with_unless("dropout", self.dropout(), 0.0)
            .with_unless("sum", self.sum, true)
            .with_unless("quant", self.quant, Quant::None)
            .with_unless("eps", self.eps(), EPS)
    }

    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        let (rows, n) = (fields.size("rows")?, fields.size("n")?);
        let dtype = fields.word_or("dtype", "one of f32, f16, bf16", DType::F32)?;
        if !matches!(dtype, DType::F32 | DType::F16 | DType::Bf16) {
            return Err(ProblemError::value("dtype", dtype, "one of f32, f16, bf16"));
        }
        let mut p = NormProblem::new(rows, n, dtype);
        p.kind = fields.word_or("kind", "rms or layer", Kind::Rms)?;
        p.residual = fields.word_or("residual", "true or false", false)?;
        p.weight = fields.word_or("weight", "true or false", true)?;
        p.bias = fields.word_or("bias", "true or false", false)?;
        p.before = fields.word_or("before", "true or false", false)?;
        p.sum = fields.word_or("sum", "true or false", true)?;
        p.quant = fields.word_or("quant", "none, f8e4m3 or i8", Quant::None)?;
        let share = "a number from 0 to below 1";
        let dropout = fields.word_or("dropout", share, 0.0)?;
        p = p.with_dropout(dropout).ok_or_else(|| ProblemError::value("dropout", dropout, share))?;
        let expected = format!("a number from {LEAST_EPS:e} to {LARGEST_EPS}");
        let eps = fields.word_or("eps", &expected, EPS)?;
        let p = p.with_eps(eps).ok_or_else(|| ProblemError::value("eps", eps, expected))?;
        if rows * n > MAX_ELEMENTS {
            return Err(ProblemError::value("rows", rows, format!("at most {MAX_ELEMENTS} elements in x")));
        }
        Ok(p)
    }

    fn key_fields(&self, bucket: &Bucket) -> Fields {
        // A row's length decides how it is cut into vectors and threads: it is never rounded. What is added under the
        // root decides neither who may race nor who wins.
        Fields::new()
            .with("rows", self.representative(bucket).rows)
            .with("n", self.n)
            .with("dtype", self.dtype)
            .with("kind", self.kind)
            .with("residual", self.residual)
            .with("weight", self.weight)
            .with("bias", self.bias)
            .with_unless("before", self.before, false)
            .with_unless("dropout", self.dropout() > 0.0, false)
            .with_unless("sum", self.sum, true)
            .with_unless("quant", self.quant, Quant::None)
    }

    fn representative(&self, bucket: &Bucket) -> Self {
        let most = MAX_SIZE.min(MAX_ELEMENTS / self.n.max(1)).max(self.rows);
        NormProblem { rows: bucket.round_changing("rows", self.rows).min(most), ..*self }
    }

    fn ragged(&self) -> Option<Self> {
        // No whole number of blocks of several rows.
        (self.rows > 13).then_some(NormProblem { rows: 13, ..*self })
    }

    fn work(&self) -> Work {
        let all = self.rows as f64 * self.n as f64;
        // x; the residual and the sum; one weight and one bias a column; y, or codes and a factor a row.
        let passes = 1.0 + f64::from(u8::from(self.residual) + u8::from(self.has_sum()));
        let columns = [self.weight, self.bias, self.before].map(u8::from).iter().sum::<u8>();
        let columns = f64::from(columns) * self.n as f64;
        let y = match self.quant.dtype() {
            Some(codes) => all * codes.bytes() as f64 + 4.0 * self.rows as f64,
            None => all * self.dtype.bytes() as f64,
        };
        Work { flops: 4.0 * all, bytes: (passes * all + columns) * self.dtype.bytes() as f64 + y }
    }

    fn dtype(&self) -> DType {
        self.dtype
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::norm::Norm;
    use warplap_core::op::Op;

    #[test]
    fn a_problem_reads_back_what_it_prints() {
        for text in [
            "norm:rows=4096,n=4096,dtype=bf16,kind=rms",
            "norm:rows=1,n=77,dtype=f16,kind=layer,residual=true,weight=false,bias=true,eps=0.000001",
            "norm:rows=9,n=7,dtype=f32,kind=layer,residual=true,before=true,dropout=0.1,sum=false",
            "norm:rows=9,n=7,dtype=bf16,kind=rms,quant=f8e4m3",
            "norm:rows=9,n=7,dtype=f16,kind=rms,residual=true,quant=i8,eps=0.001",
        ] {
            assert_eq!(Norm::text(&Norm::parse(text).unwrap()), text);
        }
        let whole = "rows=4096,n=4096,dtype=bf16,kind=rms,residual=true,bias=false,eps=1e-5";
        let p = Norm::parse(whole).unwrap();
        assert_eq!(p, NormProblem { residual: true, ..NormProblem::new(4096, 4096, DType::Bf16) });
        assert_eq!(Norm::parse(&Norm::text(&p)).unwrap(), p);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (fields, field) in [
            ("rows=1,n=1,eps=0", "'eps'"),
            ("rows=1,n=1,eps=nan", "'eps'"),
            ("rows=1,n=1,kind=batch", "'kind'"),
            ("rows=1,n=1,dropout=1", "'dropout'"),
            ("rows=1,n=1,dtype=f64", "'dtype'"),
            ("rows=1,n=1,quant=fp8", "'quant'"),
            ("rows=1048576,n=4096", "'rows'"),
            ("rows=1,n=1,residuel=true", "did you mean 'residual'?"),
        ] {
            let error = Norm::parse(fields).unwrap_err().to_string();
            assert!(error.contains(field), "{fields}: {error}");
        }
    }

    #[test]
    fn rows_are_rounded_and_their_length_is_not() {
        let p = Norm::parse("rows=1000,n=1000,eps=1e-6").unwrap();
        let other = p.with_eps(1e-3).unwrap();
        assert_eq!(p.representative(&Bucket::PowerOfTwo), NormProblem { rows: 1024, ..p });
        assert_eq!(p.key_fields(&Bucket::PowerOfTwo), other.key_fields(&Bucket::PowerOfTwo));
        assert_ne!(p, other);
    }

    #[test]
    fn bytes_are_those_read_and_written_once() {
        let p = Norm::parse("rows=10,n=100,dtype=f16,residual=true,bias=true").unwrap();
        assert_eq!(p.work(), Work { flops: 4000.0, bytes: 2.0 * (4000.0 + 200.0) });
        let p = Norm::parse("rows=10,n=100,dtype=f16,residual=true,bias=true,quant=i8").unwrap();
        assert_eq!(p.work().bytes, 2.0 * (3000.0 + 200.0) + 1000.0 + 40.0);
    }
}
