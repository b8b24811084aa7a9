//! An Op: an operation with its Problem, its Args and its right answer.

use crate::array::Array;
use crate::device::Device;
use crate::problem::{FieldReader, Problem, ProblemError};
use crate::tolerance::Tolerance;

/// The right answer to one drawing of inputs, and how far from it a kernel may be.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Every element of the output in double precision.
    pub values: Vec<f64>,
    /// How far each may be off.
    pub tolerance: Tolerance,
}

/// An operation: what is asked, what buffers it takes, and what the right answer is.
pub trait Op: Sized + Send + Sync + 'static {
    /// Its name in problem texts, keys and folders: lower-case letters, digits and underscores.
    const NAME: &'static str;

    /// The facts of one request.
    type Problem: Problem;

    /// The borrowed buffers of one launch, with their true shapes.
    type Args<'a, D: Device>;

    /// Draws fresh random inputs for a problem, in the order `bind` takes them.
    fn draw(problem: &Self::Problem, rng: &mut fastrand::Rng) -> Vec<Array>;

    /// The type and length of the output.
    fn output(problem: &Self::Problem) -> (crate::dtype::DType, usize);

    /// The right answer in double precision.
    fn answer(problem: &Self::Problem, inputs: &[Array]) -> Answer;

    /// Puts device buffers into the form kernels take. `inputs` are the uploaded arrays of `draw`.
    fn bind<'a, D: Device>(
        problem: &'a Self::Problem,
        inputs: Vec<D::View<'a>>,
        output: D::ViewMut<'a>,
    ) -> Self::Args<'a, D>;

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
