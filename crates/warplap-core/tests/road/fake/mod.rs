//! A fake operation on a fake device.

mod device;
mod mood;
mod row;

pub use device::{Buffer, Fake, In, Meter, Out, Worker};
pub use mood::{NoisyMachine, WORLDS, World};
pub use row::{Act, Count, Panics, Row, row};

use warplap_core::arg::Arg;
use warplap_core::array::Array;
use warplap_core::bucket::Bucket;
use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::op::{Answer, Op};
use warplap_core::oracle::{FarAnswer, Inputs, Oracle};
use warplap_core::problem::{FieldReader, Fields, Problem, ProblemError};
use warplap_core::roofline::Work;
use warplap_core::slot::{Signature, Slot};
use warplap_core::tolerance::Tolerance;

/// y = 2 x + step over n elements.
pub struct Scale;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScaleProblem {
    pub n: u64,
    pub step: u64,
    pub dtype: DType,
    pub label: String,
}

pub fn problem(n: u64) -> ScaleProblem {
    ScaleProblem { n, step: 1, dtype: DType::F32, label: String::new() }
}

impl Problem for ScaleProblem {
    type Op = Scale;

    const FIELDS: &'static [&'static str] = &["n", "step", "dtype", "label"];

    fn fields(&self) -> Fields {
        Fields::new().with("n", self.n).with("step", self.step).with("dtype", self.dtype).with_unless(
            "label",
            self.label.clone(),
            String::new(),
        )
    }

    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        Ok(ScaleProblem {
            n: fields.size("n")?,
            step: fields.size_or("step", 1)?,
            dtype: fields.word_or("dtype", "a type", DType::F32)?,
            label: fields.word_or("label", "a text", String::new())?,
        })
    }

    fn key_fields(&self, bucket: &Bucket) -> Fields {
        self.representative(bucket).fields()
    }

    fn representative(&self, bucket: &Bucket) -> Self {
        ScaleProblem { n: bucket.round_changing("n", self.n), ..self.clone() }
    }

    fn work(&self) -> Work {
        Work { flops: self.n as f64, bytes: 0.0 }
    }

    fn dtype(&self) -> DType {
        self.dtype
    }
}

/// x.
pub const X: usize = 0;
/// y.
pub const Y: usize = 1;

impl Op for Scale {
    const NAME: &'static str = "scale";
    type Problem = ScaleProblem;

    fn signature(p: &ScaleProblem) -> Signature {
        Signature(vec![Slot::input("x", p.dtype, &[p.n]), Slot::output("y", p.dtype, &[p.n])])
    }

    fn answer(p: &ScaleProblem, inputs: &[Array]) -> Vec<Answer> {
        let values = inputs[X].to_f64().into_iter().map(|x| 2.0 * x + p.step as f64).collect();
        vec![Answer { values, tolerance: Tolerance::dot(p.dtype, DType::F32, 2, 3.0) }]
    }
}

/// The arguments of one launch on a caller's memory.
pub fn args<'a>(p: &ScaleProblem, x: &'a [f64], y: &'a mut [f64]) -> [Arg<'a, Fake>; 2] {
    [Arg::Read(In::new(p.dtype, x)), Arg::Write(Out::new(p.dtype, y))]
}

/// Gives right answers where the inputs are.
pub struct Seer;

impl<O: Op> Oracle<O, Fake> for Seer {
    fn answer(&self, p: &O::Problem, inputs: &Inputs<'_, Fake>, _: &Fake) -> Result<Vec<FarAnswer<Fake>>, Error> {
        let array = |(slot, input): (&Slot, &Option<In<'_>>)| match input {
            Some(v) => Ok(Array::from_f64(v.dtype, v.values.iter().copied())),
            None if slot.is_read() => Err(Error::Device(format!("'{}' is not on the device", slot.name))),
            None => Ok(Array::none()),
        };
        let inputs: Vec<Array> = O::signature(p).slots().iter().zip(inputs).map(array).collect::<Result<_, Error>>()?;
        let far = |Answer { values, tolerance }| FarAnswer { values: Buffer::new(DType::F64, values), tolerance };
        Ok(O::answer(p, &inputs).into_iter().map(far).collect())
    }
}
