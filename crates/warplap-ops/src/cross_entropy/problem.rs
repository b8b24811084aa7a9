//! The facts of one cross entropy of rows.

use std::fmt;
use std::str::FromStr;

use warplap_core::bucket::Bucket;
use warplap_core::dtype::DType;
use warplap_core::problem::{FieldReader, Fields, MAX_SIZE, Problem, ProblemError};
use warplap_core::roofline::Work;

/// What becomes of the losses of all rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Their mean over the rows that count.
    #[default]
    Mean,
    /// Their sum.
    Sum,
}

impl fmt::Display for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Reduction::Mean { "mean" } else { "sum" })
    }
}

impl FromStr for Reduction {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "mean" => Ok(Reduction::Mean),
            "sum" => Ok(Reduction::Sum),
            _ => Err(()),
        }
    }
}

/// The facts of a cross entropy. Rows of logits lie one after another without padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CrossEntropyProblem {
    /// Rows.
    pub rows: u64,
    /// Logits of one row.
    pub n: u64,
    /// Type of the logits; losses, arithmetic and sums are in f32.
    pub dtype: DType,
    /// Type of the labels: i64 or i32.
    pub labels: DType,
    /// Whether the gradient of the total is asked for, in the logits' place.
    pub grad: bool,
    /// Whether the gradient lies beside the logits, and these stay.
    pub kept: bool,
    /// What the total is.
    pub reduction: Reduction,
    /// Rows with this label do not count.
    pub ignore: i64,
    /// The bits of the f32 share of a row that is dealt out to all labels alike.
    smoothing: u32,
    /// The bits of the f32 that the squared log-sum-exps are multiplied with.
    zloss: u32,
}

/// The label that does not count where nobody says otherwise, as torch has it.
const IGNORE: i64 = -100;

/// The largest total of logits: 2^31 elements.
const MAX_ELEMENTS: u64 = 1 << 31;

impl CrossEntropyProblem {
    /// The mean of plain losses over labels of 64 bits.
    pub fn new(rows: u64, n: u64, dtype: DType) -> Self {
        let (grad, kept, reduction) = (false, false, Reduction::Mean);
        let (labels, ignore, zero) = (DType::I64, IGNORE, 0f32.to_bits());
        CrossEntropyProblem { rows, n, dtype, labels, grad, kept, reduction, ignore, smoothing: zero, zloss: zero }
    }

    /// The share of a row that is dealt out to all labels alike.
    pub fn smoothing(&self) -> f32 {
        f32::from_bits(self.smoothing)
    }

    /// What the squared log-sum-exps are multiplied with.
    pub fn zloss(&self) -> f32 {
        f32::from_bits(self.zloss)
    }

    /// The same problem with another share; `None` where it is not from 0 to 1.
    pub fn with_smoothing(mut self, smoothing: f32) -> Option<Self> {
        self.smoothing = (smoothing + 0.0).to_bits();
        (0.0..=1.0).contains(&smoothing).then_some(self)
    }

    /// The same problem with another factor; `None` where it is not from 0 to 1.
    pub fn with_zloss(mut self, zloss: f32) -> Option<Self> {
        self.zloss = (zloss + 0.0).to_bits();
        (0.0..=1.0).contains(&zloss).then_some(self)
    }

    /// Whether the gradient takes the logits' place.
    pub fn takes_place(&self) -> bool {
        self.grad && !self.kept
    }

    /// Elements of the logits.
    pub fn len(&self) -> usize {
        (self.rows * self.n) as usize
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Problem for CrossEntropyProblem {
    type Op = super::CrossEntropy;

    const FIELDS: &'static [&'static str] =
        &["rows", "n", "dtype", "labels", "grad", "kept", "reduction", "ignore", "smoothing", "zloss"];

    fn fields(&self) -> Fields {
        Fields::new()
            .with("rows", self.rows)
            .with("n", self.n)
            .with("dtype", self.dtype)
            .with_unless("labels", self.labels, DType::I64)
            .with_unless("grad", self.grad, false)
            .with_unless("kept", self.kept, false)
            .with_unless("reduction", self.reduction, Reduction::Mean)
            .with_unless("ignore", self.ignore, IGNORE)
            .with_unless("smoothing", self.smoothing(), 0.0)
            .with_unless("zloss", self.zloss(), 0.0)
    }

    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        let (rows, n) = (fields.size("rows")?, fields.size("n")?);
        let dtype = fields.word_or("dtype", "one of f32, f16, bf16", DType::F32)?;
        if !matches!(dtype, DType::F32 | DType::F16 | DType::Bf16) {
            return Err(ProblemError::value("dtype", dtype, "one of f32, f16, bf16"));
        }
        let mut p = CrossEntropyProblem::new(rows, n, dtype);
        p.labels = fields.word_or("labels", "i64 or i32", DType::I64)?;
        if !matches!(p.labels, DType::I64 | DType::I32) {
            return Err(ProblemError::value("labels", p.labels, "i64 or i32"));
        }
        p.grad = fields.word_or("grad", "true or false", false)?;
        p.kept = fields.word_or("kept", "true or false", false)?;
        if p.kept && !p.grad {
            return Err(ProblemError::value("kept", true, "false: without grad=true nothing takes the logits' place"));
        }
        p.reduction = fields.word_or("reduction", "mean or sum", Reduction::Mean)?;
        p.ignore = fields.word_or("ignore", "a label", IGNORE)?;
        if n == 1 && p.ignore == 0 {
            return Err(ProblemError::value("ignore", 0, "a label that leaves others"));
        }
        let (smoothing, zloss) = (fields.word_or("smoothing", SHARE, 0.0)?, fields.word_or("zloss", SHARE, 0.0)?);
        p = p.with_smoothing(smoothing).ok_or_else(|| ProblemError::value("smoothing", smoothing, SHARE))?;
        p = p.with_zloss(zloss).ok_or_else(|| ProblemError::value("zloss", zloss, SHARE))?;
        if rows * n > MAX_ELEMENTS {
            return Err(ProblemError::value("rows", rows, format!("at most {MAX_ELEMENTS} logits")));
        }
        Ok(p)
    }

    fn key_fields(&self, bucket: &Bucket) -> Fields {
        // A row's length decides how it is cut into vectors and threads: it is never rounded. How large a share is
        // decides nothing, that there is one does.
        Fields::new()
            .with("rows", self.representative(bucket).rows)
            .with("n", self.n)
            .with("dtype", self.dtype)
            .with("labels", self.labels)
            .with("grad", self.grad)
            .with_unless("kept", self.kept, false)
            .with("reduction", self.reduction)
            .with("smoothing", self.smoothing() > 0.0)
            .with("zloss", self.zloss() > 0.0)
    }

    fn representative(&self, bucket: &Bucket) -> Self {
        let most = MAX_SIZE.min(MAX_ELEMENTS / self.n.max(1)).max(self.rows);
        CrossEntropyProblem { rows: bucket.round_changing("rows", self.rows).min(most), ..*self }
    }

    fn ragged(&self) -> Option<Self> {
        // No whole number of blocks of several rows.
        (self.rows > 13).then_some(CrossEntropyProblem { rows: 13, ..*self })
    }

    fn work(&self) -> Work {
        let all = self.rows as f64 * self.n as f64;
        let passes = if self.grad { 2.0 } else { 1.0 };
        let rows = self.rows as f64 * (8.0 + self.labels.bytes() as f64);
        Work { flops: 4.0 * all * passes, bytes: passes * all * self.dtype.bytes() as f64 + rows }
    }

    fn dtype(&self) -> DType {
        self.dtype
    }
}

const SHARE: &str = "a number from 0 to 1";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cross_entropy::CrossEntropy;
    use warplap_core::op::Op;

    #[test]
    fn a_problem_reads_back_what_it_prints() {
        for text in [
            "cross_entropy:rows=4096,n=128256,dtype=bf16",
            "cross_entropy:rows=9,n=128,dtype=bf16,grad=true,kept=true,smoothing=0.1",
            "cross_entropy:rows=24,n=77,dtype=f16,labels=i32,grad=true,reduction=sum,ignore=0,smoothing=0.1,zloss=0.0001",
        ] {
            assert_eq!(CrossEntropy::text(&CrossEntropy::parse(text).unwrap()), text);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (fields, field) in [
            ("rows=1,n=1,smoothing=1.5", "'smoothing'"),
            ("rows=1,n=1,kept=true", "'kept'"),
            ("rows=1,n=1,zloss=nan", "'zloss'"),
            ("rows=4,n=1,ignore=0", "'ignore'"),
            ("rows=4,n=1,labels=f32", "'labels'"),
            ("rows=4,n=1,reduction=none", "'reduction'"),
            ("rows=1,n=1,dtype=f64", "'dtype'"),
            ("rows=1048576,n=4096", "'rows'"),
            ("rows=1,n=1,smoothin=1", "did you mean 'smoothing'?"),
        ] {
            let error = CrossEntropy::parse(fields).unwrap_err().to_string();
            assert!(error.contains(field), "{fields}: {error}");
        }
    }

    #[test]
    fn that_there_is_a_share_is_in_the_key_and_how_large_it_is_is_not() {
        let key = |text: &str| CrossEntropy::parse(text).unwrap().key_fields(&Bucket::PowerOfTwo);
        assert_eq!(key("rows=1000,n=9,smoothing=0.1"), key("rows=1024,n=9,smoothing=0.2,ignore=3"));
        assert_ne!(key("rows=1000,n=9,smoothing=0.1"), key("rows=1000,n=9"));
        let p = CrossEntropy::parse("rows=10,n=100,dtype=f16,grad=true").unwrap();
        assert_eq!(p.work().bytes, 4000.0 + 160.0);
    }
}
