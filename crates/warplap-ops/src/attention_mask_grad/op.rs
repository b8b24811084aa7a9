//! The gradient of attention's mask, declared: the facts of a request, which are those of the forward pass, and how
//! programs name it.

use warplap_core::bucket::Bucket;
use warplap_core::declare::{FieldFacts, fields_of};
use warplap_core::dtype::DType;
use warplap_core::problem::{FieldReader, Fields, Problem, ProblemError};
use warplap_core::roofline::Work;

use super::AttentionMaskGrad;
use crate::attention::{AttentionProblem, Mask};
use crate::attention_grad::AttentionGradProblem;

/// The facts of the gradient of what an attention adds to its scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionMaskGradProblem(pub AttentionProblem);

impl Problem for AttentionMaskGradProblem {
    type Op = AttentionMaskGrad;

    const FIELDS: &'static [&'static str] = AttentionGradProblem::FIELDS;

    fn fields(&self) -> Fields {
        self.0.fields()
    }

    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        let AttentionGradProblem(p) = AttentionGradProblem::read(fields)?;
        if p.mask != Mask::Add {
            return Err(ProblemError::value("mask", p.mask, "add: no other mask has a gradient"));
        }
        match p.packed {
            Some(packed) => {
                Err(ProblemError::value("tq", packed.tq, "nothing: masks of packed sequences have no gradient"))
            }
            None => Ok(AttentionMaskGradProblem(p)),
        }
    }

    fn table(&self) -> Vec<FieldFacts> {
        fields_of(self.0.table(), Self::FIELDS)
    }

    fn key_fields(&self, bucket: &Bucket) -> Fields {
        self.0.key_fields(bucket)
    }

    fn representative(&self, bucket: &Bucket) -> Self {
        AttentionMaskGradProblem(self.0.representative(bucket))
    }

    fn smaller(&self) -> Option<Self> {
        self.0.smaller().map(AttentionMaskGradProblem)
    }

    fn work(&self) -> Work {
        let p = &self.0;
        // Scores over d and dP over dv.
        let flops = 2.0 * p.h as f64 * p.seen()[0] * (p.d + p.dv) as f64;
        // Queries, keys, values, O and its gradient come, and log-sum-exps; the mask's gradient goes.
        let elements = p.q_len() + p.k_len() + p.v_len() + 2 * p.o_len() + p.mask_len();
        let sums = p.lse_len() as f64 * 4.0;
        Work { flops, bytes: elements as f64 * p.dtype.bytes() as f64 + p.mask_bytes() + sums }
    }

    fn dtype(&self) -> DType {
        self.0.dtype
    }
}

known! {
    /// The gradient of what attention adds to its scores.
    AttentionMaskGrad {
        gradient_of: "attention",
        aliases: [],
        // A seed points nowhere.
        guarded: true,
        example: "attention_mask_grad:b=1,h=8,sq=256,sk=256,d=64,dtype=f32,causal=false,mask=add",
        cpu: "
attention_mask_grad:b=1,h=4,sq=256,sk=256,d=64,dtype=f32,causal=false,mask=add
",
        cuda: "
# A bias that is learnt: one a head, and one for all.
attention_mask_grad:b=2,h=16,sq=2048,sk=2048,d=128,dtype=bf16,causal=false,mask=add,over=heads
attention_mask_grad:b=2,h=16,sq=2048,sk=2048,d=128,dtype=bf16,causal=false,mask=add
",
    }
}
