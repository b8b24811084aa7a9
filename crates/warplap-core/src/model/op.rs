//! An Op: an operation with its Problem, its signature and its right answer.

use crate::key::Key;
use crate::measure::Policy;
use crate::model::array::Array;
use crate::model::bucket::Bucket;
use crate::model::fields::escaped;
use crate::model::problem::{FieldReader, Problem, ProblemError};
use crate::model::slot::{Role, Signature};
use crate::model::tolerance::Tolerance;

/// The right answer in one slot to one drawing of inputs, and how far from it a kernel may be.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Every element the slot spans in double precision; NaN where padding must stay as it was.
    pub values: Vec<f64>,
    /// How far each may be off.
    pub tolerance: Tolerance,
}

/// An operation: what is asked, what buffers it takes, and what the right answer is.
pub trait Op: Sized + Send + Sync + 'static {
    /// Its name in problem texts, keys and folders: lower-case letters, digits and underscores.
    const NAME: &'static str;

    /// The facts of one request.
    type Problem: Problem<Op = Self>;

    /// Whether its candidates prove themselves in the caller's process on every device: they are made of kernels that
    /// have passed in a worker before, or are nobody else's business.
    const AT_HOME: bool = false;

    /// The slots of a problem, in the order kernels take them. A slot has the same place for every problem.
    fn signature(problem: &Self::Problem) -> Signature;

    /// Draws fresh random inputs: one array a slot, empty where nothing is read; a number is an array of one.
    fn draw(problem: &Self::Problem, rng: &mut fastrand::Rng) -> Vec<Array> {
        drawn(&Self::signature(problem), rng)
    }

    /// The right answer to inputs as drawn, in double precision: one for each slot that is written, in order.
    fn answer(problem: &Self::Problem, inputs: &[Array]) -> Vec<Answer>;

    /// The key of a problem that is raced for time.
    fn key(problem: &Self::Problem, bucket: &Bucket, policy: Policy) -> Key {
        Key::of(Self::NAME, problem.key_fields(bucket).to_string(), escaped(bucket.name()), policy.to_string())
    }

    /// The problem in its text form.
    fn text(problem: &Self::Problem) -> String {
        format!("{}:{}", Self::NAME, problem.fields())
    }

    /// Reads a problem from its text form, with or without the operation's name in front.
    fn parse(text: &str) -> Result<Self::Problem, ProblemError> {
        let fields = match text.split_once(':') {
            Some((name, fields)) if name.trim() == Self::NAME => fields,
            Some((name, _)) => {
                return Err(ProblemError::UnknownOp { name: name.trim().into(), known: Self::NAME.into() });
            }
            None => text,
        };
        let mut reader = FieldReader::new(fields)?;
        // A misspelt field is the likelier cause when a required one is missing: the unknown one is reported first.
        reader.only(Self::Problem::FIELDS)?;
        let problem = Self::Problem::read(&mut reader)?;
        reader.finish().map(|()| problem)
    }
}

/// Uniform numbers in every slot that is read.
pub fn drawn(signature: &Signature, rng: &mut fastrand::Rng) -> Vec<Array> {
    let draw = |slot: &crate::model::slot::Slot| match slot.role {
        _ if !slot.is_read() => Array::none(),
        Role::Scalar => Array::random(slot.dtype, 1, rng),
        _ => Array::random(slot.dtype, slot.len(), rng),
    };
    signature.slots().iter().map(draw).collect()
}
