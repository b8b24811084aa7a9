//! The operation: what every user's kernel is to the tuner. Its problem is a spec; its right answer is the spec's
//! reference.

use std::hash::{Hash, Hasher};
use std::path::Path;
use std::sync::Arc;

use warplap::core::array::Array;
use warplap::core::bucket::Bucket;
use warplap::core::op::Answer;
use warplap::core::problem::{FieldReader, Fields, Problem, ProblemError};
use warplap::core::roofline::{Ceilings, Work};
use warplap::core::slot::Signature;
use warplap::{DType, Op};

use crate::argument::Argument;
use crate::spec::Spec;

/// A user's kernel as a problem: the spec.
#[derive(Clone, Debug)]
pub struct KernelProblem {
    pub(crate) spec: Arc<Spec>,
    identity: String,
}

impl KernelProblem {
    /// The problem a spec states.
    pub fn new(spec: &Arc<Spec>) -> Self {
        KernelProblem { spec: spec.clone(), identity: spec.identity().to_string() }
    }

    /// The spec.
    pub fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }
}

impl PartialEq for KernelProblem {
    fn eq(&self, other: &Self) -> bool {
        self.identity == other.identity && self.spec.file() == other.spec.file()
    }
}
impl Eq for KernelProblem {}
impl Hash for KernelProblem {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity.hash(state);
    }
}

impl Problem for KernelProblem {
    type Op = KernelFile;

    const FIELDS: &'static [&'static str] = &["file", "identity"];

    fn fields(&self) -> Fields {
        Fields::new().with("file", self.spec.file().display()).with("identity", &self.identity)
    }

    fn read(fields: &mut FieldReader) -> Result<Self, ProblemError> {
        let expected = "the path of a spec file";
        let file: String = fields.word_or("file", expected, String::new())?;
        let identity: String = fields.word_or("identity", "sixteen digits", String::new())?;
        if file.is_empty() {
            return Err(ProblemError::Missing { field: "file".into(), expected: expected.into() });
        }
        if let Some(spec) = Spec::known(&file, &identity) {
            return Ok(KernelProblem { spec, identity });
        }
        let spec = Spec::load(Path::new(&file)).map_err(|e| ProblemError::value("file", file, e))?;
        let problem = KernelProblem::new(&spec);
        if !identity.is_empty() && identity != problem.identity {
            let expected = format!("{}, which the files have now", problem.identity);
            return Err(ProblemError::value("identity", identity, expected));
        }
        Ok(problem)
    }

    fn key_fields(&self, _: &Bucket) -> Fields {
        let spec = &self.spec;
        let arguments: Vec<String> = spec.arguments.iter().map(Argument::short).collect();
        let constants: Vec<String> = spec.constants.iter().map(|(name, value)| format!("{name}:{value}")).collect();
        Fields::new()
            .with("name", &spec.name)
            .with("entry", &spec.code.entry)
            .with("arguments", arguments.join("/"))
            .with_unless("constants", constants.join("/"), String::new())
            // Who wins by energy and who wins by time are two answers to two questions.
            .with_unless("objective", spec.objective_word(), String::new())
    }

    /// Kernels are built for the sizes of their spec: there is nothing to round.
    fn representative(&self, _: &Bucket) -> Self {
        self.clone()
    }

    fn work(&self) -> Work {
        self.spec.work
    }

    /// Where the spec states no work, nothing is known of the least time.
    fn floor(&self, ceilings: &Ceilings, cold: bool) -> Option<f64> {
        let stated = self.spec.work != Work::default();
        stated.then(|| ceilings.floor(self.work(), self.dtype(), cold)).flatten()
    }

    fn dtype(&self) -> DType {
        self.spec.written().next().map_or(DType::F32, Argument::dtype)
    }
}

/// The operation of every user's kernel. Its slots are the spec's arguments, but for constant memory.
pub struct KernelFile;

impl Op for KernelFile {
    const NAME: &'static str = "kernel";
    type Problem = KernelProblem;

    fn signature(problem: &KernelProblem) -> Signature {
        problem.spec.signature()
    }

    fn draw(problem: &KernelProblem, rng: &mut fastrand::Rng) -> Vec<Array> {
        problem.spec.draw(rng)
    }

    fn answer(problem: &KernelProblem, inputs: &[Array]) -> Vec<Answer> {
        let spec = &problem.spec;
        let values = spec.answer(inputs).unwrap_or_else(|why| {
            // Another number of answers than slots is refused by whoever asked.
            tracing::warn!("{}: the reference gave no answer: {why}", spec.file().display());
            Vec::new()
        });
        let answer = |(argument, values): (&Argument, Vec<f64>)| {
            let tolerance = spec.allowed(argument.dtype(), &values);
            Answer { values, tolerance }
        };
        spec.written().zip(values).map(answer).collect()
    }
}
