//! Sampled products, declared: the facts of a request, which are those of the block-sparse product it is a gradient of,
//! and the order of G, and how programs name it.

use warplap_core::bucket::Bucket;
use warplap_core::declare::rules::word;
use warplap_core::declare::{FieldFacts, Words, fields_of, names};
use warplap_core::dtype::DType;
use warplap_core::problem::{FieldReader, Fields, Problem, ProblemError};
use warplap_core::roofline::Work;

use super::Sampled;
use crate::bsr::BsrProblem;
use crate::gemm::Layout;

/// The facts of values (nnz blocks) = pattern ∘ (G (m×n) · B (k×n)ᵀ).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SampledProblem {
    /// The product C = A·B whose A has this pattern: its shapes, type, counts, and the order of B.
    pub pattern: BsrProblem,
    /// Order of G.
    pub g: Layout,
}

impl SampledProblem {
    /// The gradient of a product's stored blocks, where the gradient of C has this order.
    pub fn of(product: &BsrProblem, g: Layout) -> Self {
        let plain = BsrProblem { alpha: crate::bsr::Factor::ONE, beta: crate::bsr::Factor::ZERO, ..*product };
        let plain = BsrProblem { in_place: false, bias: false, turned: false, tf32: false, c: Layout::Row, ..plain };
        SampledProblem { pattern: plain, g }
    }
}

/// What of a block-sparse product has no part in its gradient.
const LEFT_OUT: &[&str] = &["bc", "c", "alpha", "beta", "inplace", "bias", "turned", "tf32"];

impl Problem for SampledProblem {
    type Op = Sampled;

    const FIELDS: &'static [&'static str] = &names::<10>(BsrProblem::FIELDS, LEFT_OUT, &["g"]);

    fn fields(&self) -> Fields {
        self.pattern.fields().with_unless("g", self.g, Layout::Row)
    }

    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        let pattern = BsrProblem::read(fields)?;
        if pattern.is_bytes() {
            return Err(ProblemError::value("dtype", pattern.dtype, "one of f32, f16, bf16: gradients are no bytes"));
        }
        Ok(SampledProblem { pattern, g: fields.word_or("g", Layout::SENTENCE, Layout::Row)? })
    }

    fn table(&self) -> Vec<FieldFacts> {
        let g = FieldFacts::of("g", "Order of G.", &word(), (Layout::Row, "Layout::Row"));
        fields_of([self.pattern.table(), vec![g]].concat(), Self::FIELDS)
    }

    fn key_fields(&self, bucket: &Bucket) -> Fields {
        self.pattern.key_fields(bucket).with("g", self.g)
    }

    fn representative(&self, bucket: &Bucket) -> Self {
        SampledProblem { pattern: self.pattern.representative(bucket), ..*self }
    }

    fn smaller(&self) -> Option<Self> {
        Some(SampledProblem { pattern: self.pattern.smaller()?, ..*self })
    }

    fn work(&self) -> Work {
        let p = &self.pattern;
        let (values, strip) = (p.values_len() as f64, p.bs as f64 * p.n as f64);
        // At least one strip of G for each row that has blocks, and the strips of B that the fullest row meets.
        let fewest_rows = p.nnz.div_ceil(p.row_max.max(1)) as f64;
        let bytes = (values + (fewest_rows + p.row_max as f64) * strip) * p.dtype.bytes() as f64;
        Work { flops: 2.0 * values * p.n as f64, bytes: bytes + 4.0 * p.nnz as f64 }
    }

    fn dtype(&self) -> DType {
        self.pattern.dtype
    }
}

known! {
    /// The blocks of a product that a pattern names.
    Sampled {
        gradient_of: "bsr",
        aliases: ["sddmm"],
        check: { cpu: super::check_on_cpu, cuda: super::check_on_cuda },
        example: "sampled:m=4096,k=4096,n=512,bs=64,density=0.125,dtype=f32",
        cpu: "
sampled:m=1024,k=1024,n=512,bs=32,density=0.125,dtype=f32
",
        cuda: "
sampled:m=4096,k=4096,n=4096,bs=64,density=0.125,dtype=f16
",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warplap_core::op::Op;

    #[test]
    fn a_problem_reads_back_what_it_prints_and_knows_no_factors() {
        for text in [
            "sampled:m=4096,k=4096,n=512,bs=64,density=0.125,dtype=f16",
            "sampled:m=4096,k=2048,n=7,bs=32,density=0.1,dtype=bf16,imbalance=4,b=col,g=col",
        ] {
            assert_eq!(Sampled::text(&Sampled::parse(text).unwrap()), text);
        }
        let error = Sampled::parse("m=64,k=64,n=1,bs=16,density=1,alpha=2").unwrap_err().to_string();
        assert!(error.contains("'alpha'") && error.contains("expected"), "{error}");
        let error = Sampled::parse("m=64,k=64,n=1,bs=16,density=1,dtype=f8e4m3").unwrap_err().to_string();
        assert!(error.contains("'dtype'") && error.contains("bf16"), "{error}");
    }

    #[test]
    fn the_gradient_of_a_scaled_product_is_that_of_the_plain_one() {
        let scaled = crate::bsr::Bsr::parse("m=64,k=64,n=8,bs=16,density=1,alpha=2,beta=1,inplace=true,b=col").unwrap();
        let text = "sampled:m=64,k=64,n=8,bs=16,density=1,dtype=f32,b=col,g=col";
        assert_eq!(Sampled::text(&SampledProblem::of(&scaled, Layout::Col)), text);
    }
}
