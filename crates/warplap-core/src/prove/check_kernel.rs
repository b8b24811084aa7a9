//! The prover: a built kernel comes in; the largest share of the allowed error it took goes out, or a Rejection.
//!
//! All drawings of one problem go through one set of memory, one after the other: what a kernel remembers of an address
//! is wrong the second time.

use std::sync::Arc;
use std::time::Instant;

use crate::candidates::variant::Kernel;
use crate::device::Device;
use crate::error::Error;
use crate::model::erased::ErasedProblem;
use crate::prove::case::{Case, Drawing, Placed};
use crate::prove::sandbox::ProofStage;
use crate::rejection::Rejection;

/// The seed of one of the drawings of a run.
pub(crate) fn seed(run: u64, drawing: u64) -> u64 {
    run.wrapping_mul(0x9e37_79b9).wrapping_add(drawing)
}

/// Drawings of one problem with their right answers, and memory to prove kernels in.
pub(crate) struct KernelChecker<D: Device> {
    case: Case<D>,
    drawings: Vec<Placed<D>>,
    /// Seconds that one drawing took, with its right answer.
    pub(crate) seconds: f64,
}

impl<D: Device> KernelChecker<D> {
    /// Draws so many sets of inputs with their right answers.
    pub(crate) fn open(problem: &dyn ErasedProblem<D>, device: &D, run: u64, drawings: u64) -> Result<Self, Error> {
        Self::open_while(problem, device, run, drawings, &|_| true)
    }

    /// As [`KernelChecker::open`], where one more set is drawn only while there is time for what the last one took.
    pub(crate) fn open_while(
        problem: &dyn ErasedProblem<D>,
        device: &D,
        run: u64,
        drawings: u64,
        affords: &dyn Fn(f64) -> bool,
    ) -> Result<Self, Error> {
        let draw = |i| {
            let started = Instant::now();
            let placed = Placed::new(problem, device, Drawing::inputs(problem, seed(run, i))?)?;
            Ok::<_, Error>((placed, started.elapsed().as_secs_f64()))
        };
        let (first, mut seconds) = draw(1)?;
        let mut placed = vec![first];
        for i in 2..=drawings {
            if !affords(seconds) {
                break;
            }
            let (next, took) = draw(i)?;
            placed.push(next);
            seconds = took;
        }
        let case = Case::among(problem, device, &placed[0])?.for_many(device);
        Ok(KernelChecker { case, drawings: placed, seconds })
    }

    /// The drawing that kernels were proved on last.
    pub(crate) fn last(&self) -> Option<Arc<Drawing>> {
        self.drawings.last().map(|placed| placed.drawing.clone())
    }

    /// Proves a kernel on every drawing: the largest error, and where a launch is a call the seconds of the fastest.
    /// One of two may have been interrupted, and the first finds cold caches.
    pub(crate) fn prove(
        &mut self,
        kernel: &dyn Kernel<D>,
        device: &D,
        stage: &mut dyn FnMut(ProofStage),
    ) -> Result<(f64, Option<f64>), Rejection> {
        self.prove_unless(kernel, device, stage, &|_| false)
    }

    /// As [`KernelChecker::prove`], where a launch of so many seconds may say enough: what was seen until then goes out.
    pub(crate) fn prove_unless(
        &mut self,
        kernel: &dyn Kernel<D>,
        device: &D,
        stage: &mut dyn FnMut(ProofStage),
        enough: &dyn Fn(f64) -> bool,
    ) -> Result<(f64, Option<f64>), Rejection> {
        let (mut error, mut fastest) = (0f64, None::<f64>);
        for drawing in 0..self.drawings.len() {
            if fastest.is_some_and(enough) {
                break;
            }
            let (share, seconds) = self.prove_on(drawing, kernel, device, stage)?;
            error = error.max(share);
            fastest = match (fastest, seconds) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        Ok((error, fastest))
    }

    /// Proves a kernel on one drawing.
    pub(crate) fn prove_on(
        &mut self,
        drawing: usize,
        kernel: &dyn Kernel<D>,
        device: &D,
        stage: &mut dyn FnMut(ProofStage),
    ) -> Result<(f64, Option<f64>), Rejection> {
        let failed = |e: Error| Rejection::LaunchFailed { reason: e.to_string() };
        stage(ProofStage::Judge);
        self.case.refill_from(device, &self.drawings[drawing]).map_err(failed)?;
        stage(ProofStage::Run);
        let (left, seconds) = self.case.run(kernel, device)?;
        stage(ProofStage::Judge);
        let error = self.case.judge(left, device)?;
        self.case.inputs_untouched(device)?;
        Ok((error, seconds))
    }

    /// The memory kernels are proved in.
    pub(crate) fn case(&mut self) -> &mut Case<D> {
        &mut self.case
    }
}
