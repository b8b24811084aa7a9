//! The facts of the gradient of one softmax of rows.

use warplap_core::bucket::Bucket;
use warplap_core::dtype::DType;
use warplap_core::problem::{FieldReader, Fields, Problem, ProblemError};
use warplap_core::roofline::Work;

use crate::softmax::SoftmaxProblem;

/// The facts of dx = scale · y ∘ (dy − Σ dy ∘ y), row by row: those of the softmax, whose mask has no part in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SoftmaxGradProblem(pub SoftmaxProblem);

impl Problem for SoftmaxGradProblem {
    type Op = super::SoftmaxGrad;

    const FIELDS: &'static [&'static str] = &["rows", "n", "dtype", "scale"];

    fn fields(&self) -> Fields {
        self.0.fields()
    }

    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        SoftmaxProblem::read(fields).map(SoftmaxGradProblem)
    }

    fn key_fields(&self, bucket: &Bucket) -> Fields {
        let p = self.representative(bucket).0;
        Fields::new().with("rows", p.rows).with("n", p.n).with("dtype", p.dtype)
    }

    fn representative(&self, bucket: &Bucket) -> Self {
        SoftmaxGradProblem(self.0.representative(bucket))
    }

    fn ragged(&self) -> Option<Self> {
        self.0.ragged().map(SoftmaxGradProblem)
    }

    fn work(&self) -> Work {
        let all = self.0.rows as f64 * self.0.n as f64;
        Work { flops: 4.0 * all, bytes: 3.0 * all * self.0.dtype.bytes() as f64 }
    }

    fn dtype(&self) -> DType {
        self.0.dtype
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::softmax_grad::SoftmaxGrad;
    use warplap_core::op::Op;

    #[test]
    fn a_problem_reads_back_what_it_prints_and_has_no_mask() {
        let text = "softmax_grad:rows=24,n=77,dtype=f16,scale=0.125";
        let p = SoftmaxGrad::parse(text).unwrap();
        assert_eq!(SoftmaxGrad::text(&p), text);
        assert_eq!(p.work().bytes, 2.0 * 3.0 * 24.0 * 77.0);
        assert!(SoftmaxGrad::parse("rows=2,n=2,mask=1").unwrap_err().to_string().contains("mask"));
    }
}
