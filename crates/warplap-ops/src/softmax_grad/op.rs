//! Softmax's gradient, declared: the facts of a request, the slots of a launch, and how programs name it.

use warplap_core::array::Array;
use warplap_core::bucket::Bucket;
use warplap_core::declare::{FieldFacts, fields_of, names};
use warplap_core::dtype::DType;
use warplap_core::op::{Answer, Op, drawn};
use warplap_core::problem::{FieldReader, Fields, Problem, ProblemError};
use warplap_core::roofline::Work;
use warplap_core::slot::{Signature, Slot};

use super::answer;
use crate::host::map_floats;
use crate::softmax::{ALIGN, SoftmaxProblem};

/// The facts of dx = scale · y ∘ (dy − Σ dy ∘ y), row by row: those of the softmax, whose mask has no part in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SoftmaxGradProblem(pub SoftmaxProblem);

impl Problem for SoftmaxGradProblem {
    type Op = SoftmaxGrad;

    const FIELDS: &'static [&'static str] = &names::<4>(SoftmaxProblem::FIELDS, &["mask", "each"], &[]);

    fn fields(&self) -> Fields {
        self.0.fields()
    }

    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        SoftmaxProblem::read(fields).map(SoftmaxGradProblem)
    }

    fn table(&self) -> Vec<FieldFacts> {
        fields_of(self.0.table(), Self::FIELDS)
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

/// The operation of softmax's gradient.
#[derive(Clone, Copy, Debug)]
pub struct SoftmaxGrad;

/// The slots of a launch.
pub mod slot {
    /// The softmax, rows×n.
    pub const Y: usize = 0;
    /// The gradient of the softmax, rows×n.
    pub const GRAD: usize = 1;
    /// The gradient of what softmax was taken of, rows×n.
    pub const DX: usize = 2;
}

/// How many slots there are.
pub(crate) const SLOTS: usize = 3;

/// What gradients are moved by when they are drawn, so that a sum which is not taken away shows.
const SHIFT: f32 = 0.5;

impl Op for SoftmaxGrad {
    const NAME: &'static str = "softmax_grad";

    type Problem = SoftmaxGradProblem;

    fn signature(SoftmaxGradProblem(p): &SoftmaxGradProblem) -> Signature {
        let rows = [p.rows, p.n];
        Signature(vec![
            Slot::input("y", p.dtype, &rows).aligned(ALIGN),
            Slot::input("grad", p.dtype, &rows).aligned(ALIGN),
            Slot::output("dx", p.dtype, &rows).aligned(ALIGN),
        ])
    }

    fn draw(p: &SoftmaxGradProblem, rng: &mut fastrand::Rng) -> Vec<Array> {
        let (mut inputs, n) = (drawn(&Self::signature(p), rng), p.0.n as usize);
        // As a softmax has it: nothing negative, and a sum of about one.
        let by = (2.0 / n as f32).log2().round().exp2();
        map_floats(&mut inputs[slot::Y], n, |_, y| y.abs() * by);
        map_floats(&mut inputs[slot::GRAD], n, |_, g| g + SHIFT);
        inputs
    }

    fn answer(p: &SoftmaxGradProblem, inputs: &[Array]) -> Vec<Answer> {
        answer::answer(p, inputs)
    }
}

known! {
    /// Softmax backward.
    SoftmaxGrad {
        gradient_of: "softmax",
        aliases: ["softmax_backward"],
        example: "softmax_grad:rows=4096,n=4096,dtype=bf16",
        cpu: "
softmax_grad:rows=512,n=4096,dtype=f32
",
        cuda: "
softmax_grad:rows=4096,n=4096,dtype=bf16
softmax_grad:rows=65536,n=512,dtype=bf16,scale=0.125
",
    }
}

#[cfg(test)]
#[path = "op_tests.rs"]
mod tests;
