//! Proving in a worker process: a request comes in; its candidate is built, proved right on two drawings and a ragged
//! shape, launched many times in a row and proved again. "Passed" or a Rejection goes out.

use std::cell::RefCell;
use std::sync::Arc;

use crate::candidate::Candidate;
use crate::candidates::catalog::Catalog;
use crate::candidates::variant::Kernel;
use crate::device::Device;
use crate::measure::Policy;
use crate::model::erased::{ErasedProblem, Runner, TypedProblem};
use crate::model::op::Op;
use crate::prove::check_kernel::KernelChecker;
use crate::prove::panics::contained;
use crate::prove::sandbox::{Passed, ProofStage, Refusal, SandboxRequest};
use crate::rejection::Rejection;

/// Samples of a candidate's time in the sandbox: a first impression, not a measurement.
const SAMPLES: usize = 3;

/// One operation on the worker's side, whatever its types.
pub trait Prove {
    /// Lets a candidate prove itself. `stage` is told what comes next.
    fn prove(&mut self, request: &SandboxRequest, stage: &mut dyn FnMut(ProofStage)) -> Result<Passed, Refusal>;
}

/// The worker's side of one operation: device and catalog come in; candidates are proved one after the other.
pub struct OpProver<O: Op, D: Device> {
    device: Arc<D>,
    catalog: Catalog<O, D>,
    // Of the last problem asked for: its candidates come in a row.
    open: Option<OpenedProblem<D>>,
}

struct OpenedProblem<D: Device> {
    text: String,
    seed: u64,
    erased: Box<dyn ErasedProblem<D>>,
    prover: KernelChecker<D>,
    ragged: Option<(Box<dyn ErasedProblem<D>>, KernelChecker<D>)>,
    /// Whether a candidate has run in this memory.
    used: bool,
}

impl<O: Op, D: Device> OpProver<O, D> {
    /// A proving ground with no problem yet.
    pub fn new(device: Arc<D>, catalog: Catalog<O, D>) -> Self {
        OpProver { device, catalog, open: None }
    }

    fn open(&mut self, request: &SandboxRequest) -> Result<&mut OpenedProblem<D>, Refusal> {
        let fits = |o: &OpenedProblem<D>| o.text == request.problem && o.seed == request.seed;
        let open = match self.open.take().filter(fits) {
            Some(open) => open,
            None => {
                let unknown = |e: &dyn std::fmt::Display| Refusal::Unknown(e.to_string());
                let problem = O::parse(&request.problem).map_err(|e| unknown(&e))?;
                let failed = |e: crate::error::Error| Rejection::LaunchFailed { reason: e.to_string() };
                let erased: Box<dyn ErasedProblem<D>> = Box::new(TypedProblem::new(&problem, &self.catalog));
                let prover = KernelChecker::open(&*erased, &*self.device, request.seed, 2).map_err(failed)?;
                let ragged = erased.ragged().map(|erased| {
                    let prover = KernelChecker::open(&*erased, &*self.device, request.seed, 1);
                    prover.map(|prover| (erased, prover)).map_err(failed)
                });
                let (text, seed, ragged) = (request.problem.clone(), request.seed, ragged.transpose()?);
                OpenedProblem { text, seed, erased, prover, ragged, used: false }
            }
        };
        Ok(self.open.insert(open))
    }
}

impl<O: Op, D: Device> Prove for OpProver<O, D> {
    fn prove(&mut self, request: &SandboxRequest, stage: &mut dyn FnMut(ProofStage)) -> Result<Passed, Refusal> {
        let Candidate { variant: id, source, .. } = &request.candidate;
        let known = self.catalog.find(id).is_some_and(|v| v.source() == *source);
        if !known {
            return Err(Refusal::Unknown(format!("the worker does not have {id} with the caller's code")));
        }
        let (used, device) = (self.open.as_ref().is_some_and(|open| open.used), self.device.clone());
        let mut attempt = |ground: &mut Self| {
            stage(ProofStage::Draw);
            ground.open(request)?.attempt(request, &device, stage)
        };
        match attempt(self) {
            // Somebody before may have written where it had no business: nobody is called wrong for that.
            Err(Refusal::Rejected(Rejection::WrongAnswer { .. })) if used => {
                self.open = None;
                attempt(self)
            }
            outcome => outcome,
        }
    }
}

impl<D: Device> OpenedProblem<D> {
    /// Builds a candidate and proves it in the memory that is there.
    fn attempt(
        &mut self,
        request: &SandboxRequest,
        device: &D,
        stage: &mut dyn FnMut(ProofStage),
    ) -> Result<Passed, Refusal> {
        self.used = true;
        stage(ProofStage::Build);
        let Candidate { variant: id, config, .. } = &request.candidate;
        let unknown = || Refusal::Unknown(format!("the worker does not have {id}"));
        let kernel: Arc<dyn Kernel<D>> = self.erased.find(id).ok_or_else(unknown)?.build(config, device)?.into();
        let (mut error, _) = self.prover.prove(&*kernel, device, stage)?;
        let seconds = time(&mut self.prover, &kernel, device, request.policy, stage)?;
        // Many launches in a row, then once more: what a launch leaves behind must not harm the next.
        let (again, _) = self.prover.prove_on(0, &*kernel, device, stage)?;
        error = error.max(again);
        if let Some((erased, prover)) = &mut self.ragged
            && let Some(runner) = erased.find(id).filter(|r| can(r, config, device))
        {
            stage(ProofStage::Build);
            match runner.build(config, device) {
                Ok(kernel) => error = error.max(prover.prove(&*kernel, device, stage)?.0),
                // A library proposes other algorithms for other shapes: this one is none of those for the ragged one.
                Err(Rejection::DoesNotBuild { .. }) if runner.is_library() => {}
                Err(rejection) => return Err(rejection.into()),
            }
        }
        Ok(Passed { error, seconds })
    }
}

/// Whether a setting is one of a variant's for its problem.
fn can<D: Device>(runner: &Runner<'_, D>, config: &crate::space::Config, device: &D) -> bool {
    runner.fits(device) && runner.space(device).contains(config)
}

/// Launches a kernel as the race will, and gives the shortest time seen.
fn time<D: Device>(
    prover: &mut KernelChecker<D>,
    kernel: &Arc<dyn Kernel<D>>,
    device: &D,
    policy: Policy,
    stage: &mut dyn FnMut(ProofStage),
) -> Result<f64, Rejection> {
    stage(ProofStage::Run);
    let case = RefCell::new(prover.case());
    let spots = case.borrow().spots(&**kernel, device);
    let launch = Box::new(|queue: &D::Queue, _| case.borrow_mut().launch(&**kernel, device, queue));
    let mut lap = contained(|| device.lap(policy, &[spots], launch))?;
    let mut best = f64::INFINITY;
    for _ in 0..SAMPLES {
        stage(ProofStage::Run);
        best = best.min(contained(|| lap.run())?);
    }
    Ok(best)
}
