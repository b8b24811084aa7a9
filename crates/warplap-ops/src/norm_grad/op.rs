//! A norm's gradients, declared: the facts of a request, the slots of a launch, and how programs name it.

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
use crate::norm::{ALIGN, Kind, NormProblem};

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
    type Op = NormGrad;

    const FIELDS: &'static [&'static str] =
        &names::<9>(NormProblem::FIELDS, &["residual", "before", "sum", "quant"], &["total"]);

    fn fields(&self) -> Fields {
        self.norm.fields().with_unless("total", self.total, false)
    }

    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        let total = fields.word_or("total", "true or false", false)?;
        Ok(NormGradProblem { norm: NormProblem::read(fields)?, total })
    }

    fn table(&self) -> Vec<FieldFacts> {
        let total =
            FieldFacts::flag("total", "Whether s has a gradient from elsewhere too, which is added to its own.");
        fields_of([self.norm.table(), vec![total]].concat(), Self::FIELDS)
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

/// The operation of a norm's gradients.
#[derive(Clone, Copy, Debug)]
pub struct NormGrad;

/// The slots of a launch.
pub mod slot {
    /// What was normalised, rows×n.
    pub const S: usize = 0;
    /// The gradient of the norm, rows×n.
    pub const GRAD: usize = 1;
    /// What each column was multiplied with: n numbers.
    pub const WEIGHT: usize = 2;
    /// The gradient of s from elsewhere, rows×n.
    pub const TOTAL: usize = 3;
    /// Seed and stream of what was dropped: two i64.
    pub const SEED: usize = 4;
    /// The gradient of s, rows×n.
    pub const DS: usize = 5;
    /// The gradient of what elements were dropped of, rows×n.
    pub const DX: usize = 6;
    /// The gradient of the weight, n numbers.
    pub const DWEIGHT: usize = 7;
    /// The gradient of the bias, n numbers.
    pub const DBIAS: usize = 8;
}

/// How many slots there are.
pub(crate) const SLOTS: usize = 9;

impl Op for NormGrad {
    const NAME: &'static str = "norm_grad";

    type Problem = NormGradProblem;

    fn signature(p: &NormGradProblem) -> Signature {
        let (norm, rows, columns) = (&p.norm, [p.norm.rows, p.norm.n], [p.norm.n]);
        let input = |name: &'static str, shape: &[u64]| Slot::input(name, norm.dtype, shape).aligned(ALIGN);
        let output = |name: &'static str, shape: &[u64]| Slot::output(name, norm.dtype, shape).aligned(ALIGN);
        let drops = norm.dropout() > 0.0;
        Signature(vec![
            input("s", &rows),
            input("grad", &rows),
            input("weight", &columns).when(norm.weight),
            input("total", &rows).when(p.total),
            Slot::input("seed", DType::I64, &[2]).when(drops),
            output("ds", &rows),
            output("dx", &rows).when(drops),
            output("dweight", &columns).when(norm.weight),
            output("dbias", &columns).when(norm.bias),
        ])
    }

    fn draw(p: &NormGradProblem, rng: &mut fastrand::Rng) -> Vec<Array> {
        let mut inputs = drawn(&Self::signature(p), rng);
        // Moved, so that a mean which is not taken away shows.
        let shift = if p.norm.kind == Kind::Layer { 0.5 } else { 0.0 };
        map_floats(&mut inputs[slot::S], p.norm.n as usize, |_, s| s + shift);
        map_floats(&mut inputs[slot::GRAD], p.norm.n as usize, |_, g| g + 0.25);
        inputs
    }

    fn answer(p: &NormGradProblem, inputs: &[Array]) -> Vec<Answer> {
        answer::answer(p, inputs)
    }
}

known! {
    /// A norm backward.
    NormGrad {
        gradient_of: "norm",
        aliases: ["norm_backward"],
        // A seed points nowhere.
        guarded: true,
        example: "norm_grad:rows=4096,n=4096,dtype=bf16,kind=rms,total=true",
        cpu: "
norm_grad:rows=512,n=4096,dtype=bf16,kind=rms,total=true
norm_grad:rows=512,n=1024,dtype=f32,kind=layer,bias=true
",
        cuda: "
norm_grad:rows=8192,n=4096,dtype=bf16,kind=rms,total=true
norm_grad:rows=8192,n=1024,dtype=bf16,kind=layer,bias=true,dropout=0.1
",
    }
}

#[cfg(test)]
#[path = "op_tests.rs"]
mod tests;
