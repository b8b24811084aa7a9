//! The facts of one softmax of rows.

use warplap_core::bucket::Bucket;
use warplap_core::dtype::DType;
use warplap_core::problem::{FieldReader, Fields, MAX_SIZE, Problem, ProblemError};
use warplap_core::roofline::Work;

/// The facts of y = softmax(scale · x + mask), row by row. Rows lie one after another without padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SoftmaxProblem {
    /// Rows.
    pub rows: u64,
    /// Elements of one row.
    pub n: u64,
    /// Type of all buffers; arithmetic and sums are in f32.
    pub dtype: DType,
    /// Rows of the mask; 0 where there is none. Row r has the mask's row (r / each) modulo this.
    pub mask: u64,
    /// Rows one after another that share a row of the mask.
    pub each: u64,
    /// The bits of the f32 that x is multiplied with.
    scale: u32,
}

/// The largest total of one buffer: 2^31 elements.
const MAX_ELEMENTS: u64 = 1 << 31;

impl SoftmaxProblem {
    /// A softmax of plain rows.
    pub fn new(rows: u64, n: u64, dtype: DType) -> Self {
        SoftmaxProblem { rows, n, dtype, mask: 0, each: 1, scale: 1f32.to_bits() }
    }

    /// What x is multiplied with.
    pub fn scale(&self) -> f32 {
        f32::from_bits(self.scale)
    }

    /// The same problem with another factor; `None` where it is not finite.
    pub fn with_scale(mut self, scale: f32) -> Option<Self> {
        self.scale = scale.to_bits();
        scale.is_finite().then_some(self)
    }

    /// The row of the mask that a row has.
    pub fn mask_row(&self, row: u64) -> u64 {
        row / self.each.max(1) % self.mask.max(1)
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

impl Problem for SoftmaxProblem {
    type Op = super::Softmax;

    const FIELDS: &'static [&'static str] = &["rows", "n", "dtype", "scale", "mask", "each"];

    fn fields(&self) -> Fields {
        Fields::new()
            .with("rows", self.rows)
            .with("n", self.n)
            .with("dtype", self.dtype)
            .with_unless("scale", self.scale(), 1.0)
            .with_unless("mask", self.mask, 0)
            .with_unless("each", self.each, 1)
    }

    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        let (rows, n) = (fields.size("rows")?, fields.size("n")?);
        let dtype = fields.word_or("dtype", "one of f32, f16, bf16", DType::F32)?;
        if !matches!(dtype, DType::F32 | DType::F16 | DType::Bf16) {
            return Err(ProblemError::value("dtype", dtype, "one of f32, f16, bf16"));
        }
        let mut p = SoftmaxProblem::new(rows, n, dtype);
        let scale = fields.word_or("scale", "a finite number", 1.0)?;
        p = p.with_scale(scale).ok_or_else(|| ProblemError::value("scale", scale, "a finite number"))?;
        p.mask = fields.word_or("mask", "rows of the mask, at most those of x", 0)?;
        p.each = fields.word_or("each", "rows that share one of the mask", 1)?;
        if p.mask > rows {
            return Err(ProblemError::value("mask", p.mask, "rows of the mask, at most those of x"));
        }
        if p.each == 0 || p.each > rows.max(1) || (p.mask == 0 && p.each != 1) {
            return Err(ProblemError::value("each", p.each, "rows that share one of the mask; 1 without a mask"));
        }
        if rows * n > MAX_ELEMENTS {
            return Err(ProblemError::value("rows", rows, format!("at most {MAX_ELEMENTS} elements in x")));
        }
        Ok(p)
    }

    fn key_fields(&self, bucket: &Bucket) -> Fields {
        // A row's length decides how it is cut into vectors and threads: it is never rounded. The factor decides
        // neither who may race nor who wins.
        let p = self.representative(bucket);
        Fields::new().with("rows", p.rows).with("n", p.n).with("dtype", p.dtype).with("mask", p.mask)
    }

    fn representative(&self, bucket: &Bucket) -> Self {
        let most = MAX_SIZE.min(MAX_ELEMENTS / self.n.max(1)).max(self.rows);
        let rows = bucket.round_changing("rows", self.rows).min(most);
        let mask = if self.mask == 0 { 0 } else { bucket.round_changing("mask", self.mask).min(rows) };
        SoftmaxProblem { rows, mask, ..*self }
    }

    fn ragged(&self) -> Option<Self> {
        // No whole number of blocks of several rows.
        let (mask, each) = (self.mask.min(5), self.each.min(3));
        (self.rows > 13).then_some(SoftmaxProblem { rows: 13, mask, each, ..*self })
    }

    fn work(&self) -> Work {
        let all = self.rows as f64 * self.n as f64;
        let mask = self.mask.min(self.rows.div_ceil(self.each.max(1))) as f64 * self.n as f64;
        Work { flops: 5.0 * all, bytes: (2.0 * all + mask) * self.dtype.bytes() as f64 }
    }

    fn dtype(&self) -> DType {
        self.dtype
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::softmax::Softmax;
    use warplap_core::op::Op;

    #[test]
    fn a_problem_reads_back_what_it_prints() {
        for text in [
            "softmax:rows=4096,n=4096,dtype=bf16",
            "softmax:rows=24,n=77,dtype=f16,scale=0.125,mask=2,each=12",
            "softmax:rows=24,n=77,dtype=f32,mask=6",
        ] {
            assert_eq!(Softmax::text(&Softmax::parse(text).unwrap()), text);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (fields, field) in [
            ("rows=1,n=1,scale=inf", "'scale'"),
            ("rows=1,n=1,scale=nan", "'scale'"),
            ("rows=4,n=1,mask=5", "'mask'"),
            ("rows=4,n=1,mask=2,each=0", "'each'"),
            ("rows=4,n=1,each=2", "'each'"),
            ("rows=1,n=1,dtype=f64", "'dtype'"),
            ("rows=1048576,n=4096", "'rows'"),
            ("rows=1,n=1,skale=1", "did you mean 'scale'?"),
        ] {
            let error = Softmax::parse(fields).unwrap_err().to_string();
            assert!(error.contains(field), "{fields}: {error}");
        }
    }

    #[test]
    fn a_batch_s_mask_is_shared_by_heads_and_a_causal_one_by_batches() {
        // Two batches, three heads, four queries: one row of the mask a batch, then four rows for everybody.
        let of = |text: &str| {
            let p = Softmax::parse(text).unwrap();
            (0..24).map(|row| p.mask_row(row)).collect::<Vec<_>>()
        };
        assert_eq!(of("rows=24,n=1,mask=2,each=12"), [[0; 12], [1; 12]].concat());
        assert_eq!(of("rows=24,n=1,mask=4"), [0, 1, 2, 3].repeat(6));
    }

    #[test]
    fn rows_are_rounded_and_their_length_is_not() {
        let p = Softmax::parse("rows=1000,n=1000,scale=0.5,mask=1000").unwrap();
        let other = p.with_scale(2.0).unwrap();
        assert_eq!(p.representative(&Bucket::PowerOfTwo), SoftmaxProblem { rows: 1024, mask: 1024, ..p });
        assert_eq!(p.key_fields(&Bucket::PowerOfTwo), other.key_fields(&Bucket::PowerOfTwo));
        assert_eq!(p.work().bytes, 3.0 * 4e6);
    }
}
