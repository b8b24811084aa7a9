//! The right answer where it comes from a CUDA kernel: inputs on a GPU come in; what the reference makes of them goes
//! out, in double precision. Before it is asked it is tried out like any candidate, in a process that it may take with
//! it.

use std::sync::Arc;

use warplap::Cuda;
use warplap::core::arg::Arg;
use warplap::core::array::Array;
use warplap::core::candidate::{Candidate, SourceHash};
use warplap::core::device::Device;
use warplap::core::error::Error;
use warplap::core::oracle::{FarAnswer, Inputs, Oracle};
use warplap::core::rejection::Rejection;
use warplap::core::sandbox::{ProofStage, SandboxRequest};
use warplap::core::space::Config;
use warplap::core::variant::{Kernel, Variant};
use warplap::core::verify::poison_of;
use warplap::cuda::{Buffer, View, ViewMut};
use warplap::{Op, Settings};

use super::variant::{Built, OwnCuda, PlainCuda};
use crate::argument::{Argument, Role};
use crate::op::{KernelFile, KernelProblem};
use crate::spec::{Reference, Spec};

/// Seconds a launch of the reference may take: it is allowed to be slow.
const PATIENCE: f64 = 60.0;

/// Computes right answers with the spec's own kernel.
pub(crate) struct Right(pub(crate) Arc<Spec>);

impl Right {
    /// Who gives the answers, as a candidate.
    fn candidate(&self) -> Candidate {
        let named = |variant: &dyn Variant<KernelFile, Cuda>, config: Config| -> Candidate {
            let (variant, source): (String, SourceHash) = (variant.id().to_string(), variant.source());
            Candidate { variant, config, source }
        };
        match &self.0.reference {
            Reference::Cuda(..) => named(&PlainCuda(self.0.clone()), Config::new()),
            _ => named(&OwnCuda(self.0.clone()), self.0.default_config()),
        }
    }

    /// Whether it can be relied on: it runs, in a worker where there is one, writes every element and nothing else, and
    /// agrees with itself.
    pub(crate) fn proved(&self, cuda: &Cuda) -> Result<(), Rejection> {
        let request = SandboxRequest {
            problem: KernelFile::text(&KernelProblem::new(&self.0)),
            candidate: self.candidate(),
            seed: Settings::default().seed,
            policy: Cuda::usual_policy(),
            patience: PATIENCE,
            trusted: true,
        };
        match cuda.sandbox(&request) {
            Some(outcome) => outcome.map(drop),
            None => self.tried_out(cuda, request.seed, &mut |_| {}),
        }
    }

    /// Whether a request is about whoever gives the answers.
    pub(crate) fn is_asked_for(&self, request: &SandboxRequest) -> bool {
        request.candidate == self.candidate()
    }

    /// Runs it once, step by step: whatever it does, it does under the deadline of that step and to its own account. As
    /// somebody who is asked for answers, its faults would be nobody's.
    pub(crate) fn tried_out(&self, cuda: &Cuda, seed: u64, stage: &mut dyn FnMut(ProofStage)) -> Result<(), Rejection> {
        let failed = |e: Error| Rejection::LaunchFailed { reason: e.to_string() };
        stage(ProofStage::Draw);
        let drawn = self.0.draw(&mut fastrand::Rng::with_seed(seed));
        let upload = |a: &Array| if a.is_empty() { Ok(None) } else { cuda.upload_queued(a).map(Some) };
        let buffers = drawn.iter().map(upload).collect::<Result<Vec<_>, Error>>().map_err(failed)?;
        let inputs: Vec<Option<View<'_>>> = buffers.iter().map(|b| b.as_ref().map(View::from)).collect();
        stage(ProofStage::Build);
        let kernel = PlainCuda(self.0.clone()).built(cuda)?;
        stage(ProofStage::Run);
        let arguments = self.outputs(&kernel, &inputs, cuda)?;
        stage(ProofStage::Judge);
        self.values(&arguments).map(drop)
    }

    /// What a kernel leaves in poisoned outputs and, on copies, in what it changes in place.
    fn outputs(&self, kernel: &Built, inputs: &Inputs<'_, Cuda>, cuda: &Cuda) -> Result<Vec<Array>, Rejection> {
        let failed = |e: Error| Rejection::LaunchFailed { reason: e.to_string() };
        let written = |(argument, input): (&Argument, &Option<View<'_>>)| {
            let (dtype, len) = (argument.dtype(), argument.len());
            let poison = Array::filled(dtype, len, poison_of(dtype));
            let mut buffer = cuda.upload_queued(&poison).map_err(failed)?;
            if let (Role::InOut, Some(input)) = (argument.role, input) {
                cuda.stream().copy_into(&mut ViewMut::from(&mut buffer), 0, input).map_err(|e| e.rejection())?;
            }
            Ok(buffer)
        };
        let outputs = self.0.parameters().zip(inputs).filter(|(argument, _)| argument.is_output());
        let mut buffers = outputs.map(written).collect::<Result<Vec<Buffer>, Rejection>>()?;
        let mut outputs = buffers.iter_mut();
        let borrowed = self.0.parameters().zip(inputs).map(|(argument, input)| match argument.role {
            Role::Scalar => Arg::Scalar(argument.scalar()),
            Role::Out | Role::InOut => outputs.next().map_or(Arg::Absent, |buffer| Arg::Write(buffer.into())),
            Role::In | Role::Constant => Arg::optional(*input),
        });
        let mut args: Vec<Arg<'_, Cuda>> = borrowed.collect();
        self.0.signature().check(&args).map_err(failed)?;
        kernel.launch(&mut args, cuda.stream())?;
        drop(args);
        // A fault of the kernel is told when it is waited for.
        cuda.stream().synchronize().map_err(|e| e.rejection())?;
        buffers.iter().map(|buffer| cuda.download(buffer).map_err(failed)).collect()
    }

    /// Every output in double precision; a Rejection where something was not written.
    fn values(&self, arguments: &[Array]) -> Result<Vec<Vec<f64>>, Rejection> {
        let values = |(argument, arguments): (&Argument, &Array)| {
            let (poison, values) = (poison_of(arguments.dtype()), arguments.to_f64());
            match values.iter().position(|v| v.is_nan() || *v == poison) {
                None => Ok(values),
                Some(at) => {
                    let reason = format!("element {at} of '{}' is NaN or was never written", argument.name);
                    Err(Rejection::WrongAnswer { error: f64::INFINITY, allowed: 0.0, reason })
                }
            }
        };
        self.0.written().zip(arguments).map(values).collect()
    }
}

impl Oracle<KernelFile, Cuda> for Right {
    fn answer(&self, _: &KernelProblem, inputs: &Inputs<'_, Cuda>, cuda: &Cuda) -> Result<Vec<FarAnswer<Cuda>>, Error> {
        let answered = || {
            let kernel = PlainCuda(self.0.clone()).built(cuda)?;
            self.values(&self.outputs(&kernel, inputs, cuda)?)
        };
        let refused = |why: Rejection| Error::Device(format!("the reference gives no answer: {why}"));
        let answer = |(argument, values): (&Argument, Vec<f64>)| {
            let tolerance = self.0.allowed(argument.dtype(), &values);
            Ok(FarAnswer { values: cuda.upload_queued(&Array::F64(values))?, tolerance })
        };
        self.0.written().zip(answered().map_err(refused)?).map(answer).collect()
    }

    fn is_alone(&self) -> bool {
        true
    }
}
