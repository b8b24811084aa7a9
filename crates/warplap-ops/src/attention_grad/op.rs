//! Attention's gradients, declared: the facts of a request, which are those of the forward pass, and how programs name
//! it.

use warplap_core::bucket::Bucket;
use warplap_core::declare::{FieldFacts, fields_of, names};
use warplap_core::dtype::DType;
use warplap_core::problem::{FieldReader, Fields, Problem, ProblemError};
use warplap_core::roofline::Work;

use super::AttentionGrad;
use crate::attention::AttentionProblem;

/// The facts of dQ, dK and dV of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionGradProblem(pub AttentionProblem);

/// What is said of keys that only a forward pass follows.
const NO_BACKWARD: &str = "nothing: there is no backward pass for keys in pages or of unequal length";

impl Problem for AttentionGradProblem {
    type Op = AttentionGrad;

    const FIELDS: &'static [&'static str] = &names::<25>(AttentionProblem::FIELDS, &["lse"], &[]);

    fn fields(&self) -> Fields {
        self.0.fields()
    }

    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        match AttentionProblem::read(fields)? {
            p if p.lse => Err(ProblemError::value("lse", true, "nothing: log-sum-exps come in")),
            p if p.lengths => Err(ProblemError::value("lengths", true, NO_BACKWARD)),
            p => match p.paged {
                Some(paged) => Err(ProblemError::value("page", paged.page, NO_BACKWARD)),
                None => Ok(AttentionGradProblem(p)),
            },
        }
    }

    fn table(&self) -> Vec<FieldFacts> {
        fields_of(self.0.table(), Self::FIELDS)
    }

    fn key_fields(&self, bucket: &Bucket) -> Fields {
        self.0.key_fields(bucket)
    }

    fn raced(&self) -> Self {
        AttentionGradProblem(self.0.raced())
    }

    fn representative(&self, bucket: &Bucket) -> Self {
        AttentionGradProblem(self.0.representative(bucket))
    }

    fn smaller(&self) -> Option<Self> {
        self.0.smaller().map(AttentionGradProblem)
    }

    fn work(&self) -> Work {
        let p = &self.0;
        let pairs = p.h as f64 * p.seen()[0];
        // Scores, dQ and dK over d; dP and dV over dv.
        let flops = 2.0 * pairs * (3 * p.d + 2 * p.dv) as f64;
        // Queries, keys and values come and their gradients go, O and its gradient come.
        let elements = 2 * (p.q_len() + p.k_len() + p.v_len() + p.o_len());
        let sums = p.lse_len() as f64 * 4.0;
        Work { flops, bytes: elements as f64 * p.dtype.bytes() as f64 + p.mask_bytes() + sums }
    }

    fn dtype(&self) -> DType {
        self.0.dtype
    }
}

known! {
    /// Attention backward.
    AttentionGrad {
        gradient_of: "attention",
        aliases: ["sdpa_backward"],
        // A seed points nowhere.
        guarded: true,
        example: "attention_grad:b=1,h=8,sq=256,sk=256,d=64,dtype=f32,causal=false",
        cpu: "
attention_grad:b=1,h=4,sq=256,sk=256,d=64,dtype=f32,causal=false
",
        cuda: "
# A training step's layers: long, causal, with narrow heads.
attention_grad:b=2,h=16,sq=4096,sk=4096,d=128,dtype=bf16,causal=true
attention_grad:b=2,h=16,sq=4096,sk=4096,d=128,dtype=bf16,causal=false
attention_grad:b=4,h=16,sq=2048,sk=2048,d=64,dtype=bf16,causal=true
",
    }
}
