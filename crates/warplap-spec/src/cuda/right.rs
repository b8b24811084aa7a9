//! The right answer where it comes from a CUDA kernel: inputs on a GPU come in; what the reference makes of them goes out,
//! in double precision. Before it is asked it is tried out like any candidate, in a process that it may take with it.

use std::sync::Arc;

use warplap::Cuda;
use warplap::core::array::Array;
use warplap::core::candidate::{Candidate, SourceHash};
use warplap::core::device::Device;
use warplap::core::error::Error;
use warplap::core::oracle::{FarAnswer, Oracle};
use warplap::core::rejection::Rejection;
use warplap::core::sandbox::{SandboxRequest, Stage};
use warplap::core::space::Config;
use warplap::core::variant::{Kernel, Variant};
use warplap::core::verify::poison_of;
use warplap::cuda::Buffer;
use warplap::{Op, Settings};

use super::variant::{Built, OwnCuda, PlainCuda};
use crate::op::{KernelArgs, KernelFile, KernelProblem};
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
    pub(crate) fn tried_out(&self, cuda: &Cuda, seed: u64, stage: &mut dyn FnMut(Stage)) -> Result<(), Rejection> {
        let failed = |e: Error| Rejection::LaunchFailed { reason: e.to_string() };
        stage(Stage::Draw);
        let inputs = self.0.draw(&mut fastrand::Rng::with_seed(seed));
        let buffers = inputs.iter().map(|a| cuda.upload_queued(a)).collect::<Result<Vec<_>, _>>().map_err(failed)?;
        stage(Stage::Build);
        let kernel = PlainCuda(self.0.clone()).built(cuda)?;
        stage(Stage::Run);
        let given = self.given(&kernel, &buffers.iter().collect::<Vec<_>>(), cuda)?;
        stage(Stage::Judge);
        self.values(&given).map(drop)
    }

    /// What a kernel leaves in a poisoned output.
    fn given(&self, kernel: &Built, inputs: &[&Buffer], cuda: &Cuda) -> Result<Array, Rejection> {
        let failed = |e: Error| Rejection::LaunchFailed { reason: e.to_string() };
        let (dtype, len) = self.0.output();
        let mut output = cuda.upload_queued(&Array::filled(dtype, len, poison_of(dtype))).map_err(failed)?;
        let inputs = inputs.iter().map(|buffer| (*buffer).into()).collect();
        let args = KernelArgs { inputs, output: cuda.view_mut(&mut output, 0..len) };
        kernel.launch(args, cuda.stream())?;
        // A fault of the kernel is told when it is waited for.
        cuda.stream().synchronize().map_err(|e| e.rejection())?;
        cuda.download(&output).map_err(failed)
    }

    /// Every output in its place, NaN between them; a Rejection where something was not written.
    fn values(&self, given: &Array) -> Result<Vec<f64>, Rejection> {
        let (poison, given) = (poison_of(given.dtype()), given.to_f64());
        let mut values = vec![f64::NAN; given.len()];
        for (argument, start) in self.0.arguments.iter().zip(self.0.outputs()) {
            let Some(start) = start else { continue };
            let part = start..start + argument.len();
            if let Some(at) = given[part.clone()].iter().position(|v| v.is_nan() || *v == poison) {
                let reason = format!("element {at} of '{}' is NaN or was never written", argument.name);
                return Err(Rejection::WrongAnswer { error: f64::INFINITY, allowed: 0.0, reason });
            }
            values[part.clone()].copy_from_slice(&given[part]);
        }
        Ok(values)
    }
}

impl Oracle<KernelFile, Cuda> for Right {
    fn answer(&self, _: &KernelProblem, inputs: &[&Buffer], cuda: &Cuda) -> Result<FarAnswer<Cuda>, Error> {
        let answered = || {
            let kernel = PlainCuda(self.0.clone()).built(cuda)?;
            self.values(&self.given(&kernel, inputs, cuda)?)
        };
        let refused = |why: Rejection| Error::Device(format!("the reference gives no answer: {why}"));
        let values = answered().map_err(refused)?;
        let tolerance = self.0.allowed(&values);
        Ok(FarAnswer { values: cuda.upload_queued(&Array::F64(values))?, tolerance })
    }

    fn is_alone(&self) -> bool {
        true
    }
}
