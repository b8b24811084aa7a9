//! The facts of the gradients of one normalisation of rows.

use warplap_core::bucket::Bucket;
use warplap_core::dtype::DType;
use warplap_core::problem::{FieldReader, Fields, Problem, ProblemError};
use warplap_core::roofline::Work;

use crate::norm::NormProblem;

/// The facts of the gradients of y = norm(s) * weight + bias. Of the norm's own facts `residual`, `before`, `sum` and
/// `quant` have no part in it: they say how s came about and what becomes of y.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NormGradProblem {
    /// The norm.
    pub norm: NormProblem,
    /// Whether s has a gradient from elsewhere too, which is added to its own.
    pub total: bool,
}

impl Problem for NormGradProblem {
    type Op = super::NormGrad;

    const FIELDS: &'static [&'static str] =
        &["rows", "n", "dtype", "kind", "weight", "bias", "dropout", "eps", "total"];

    fn fields(&self) -> Fields {
        self.norm.fields().with_unless("total", self.total, false)
    }

    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        let total = fields.word_or("total", "true or false", false)?;
        Ok(NormGradProblem { norm: NormProblem::read(fields)?, total })
    }

    fn key_fields(&self, bucket: &Bucket) -> Fields {
        self.norm.key_fields(bucket).with("total", self.total)
    }

    fn representative(&self, bucket: &Bucket) -> Self {
        NormGradProblem { norm: self.norm.representative(bucket), ..*self }
    }

    fn ragged(&self) -> Option<Self> {
        self.norm.ragged().map(|norm| NormGradProblem { norm, ..*self })
    }

    fn work(&self) -> Work {
        let p = &self.norm;
        let all = p.rows as f64 * p.n as f64;
        // s, the gradient of y and that of s; the one from elsewhere, and that of what was dropped.
        let passes = 3.0 + f64::from(u8::from(self.total) + u8::from(p.dropout() > 0.0));
        let columns = f64::from(2 * u8::from(p.weight) + u8::from(p.bias)) * p.n as f64;
        Work { flops: 8.0 * all, bytes: (passes * all + columns) * p.dtype.bytes() as f64 }
    }

    fn dtype(&self) -> DType {
        self.norm.dtype
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::norm_grad::NormGrad;
    use warplap_core::op::Op;

    #[test]
    fn a_problem_reads_back_what_it_prints_and_has_no_residual() {
        let text = "norm_grad:rows=24,n=77,dtype=f16,kind=layer,weight=false,bias=true,dropout=0.1,total=true";
        let p = NormGrad::parse(text).unwrap();
        assert_eq!(NormGrad::text(&p), text);
        assert_eq!(p.work().bytes, 2.0 * (5.0 * 24.0 * 77.0 + 77.0));
        assert!(NormGrad::parse("rows=2,n=2,residual=true").unwrap_err().to_string().contains("residual"));
    }
}
