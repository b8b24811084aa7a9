//! The gate: a Candidate comes in; a built kernel that was proved right, ready to be timed, goes out, or a Rejection.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;

use crate::candidate::Candidate;
use crate::catalog::Catalog;
use crate::device::{Device, SandboxRequest};
use crate::error::Error;
use crate::measure::{Lap, Measurement, Stopwatch};
use crate::op::Op;
use crate::rejection::Rejection;
use crate::roofline::IMPOSSIBLE_BELOW;
use crate::settings::Settings;
use crate::variant::{Fit, Kernel, Priority};
use crate::verdict::Contender;
use crate::verify::{Case, Drawing, contained};

/// A candidate whose first launch takes this many times the best seen, and [`SLOW_SECONDS`], is not launched again.
const HOPELESS: f64 = 3.0;
const SLOW_SECONDS: f64 = 5e-3;

/// A candidate that was proved right.
pub(crate) struct Entrant<'g, O: Op, D: Device> {
    pub(crate) contender: Contender,
    pub(crate) kernel: Arc<dyn Kernel<O, D>>,
    lap: Box<dyn Lap + 'g>,
}

/// Inputs, answers and buffers that all candidates of one key are proved and timed on.
pub(crate) struct Gate<'g, O: Op, D: Device> {
    problem: &'g O::Problem,
    device: &'g D,
    catalog: &'g Catalog<O, D>,
    settings: &'g Settings,
    // One set of memory for both drawings: what a kernel remembers of an address is wrong the second time.
    proof: RefCell<Case<O, D>>,
    drawings: Vec<Arc<Drawing>>,
    // Drawn when a winner is to be proved again.
    fresh: OnceCell<Arc<Drawing>>,
    timed: RefCell<Vec<Case<O, D>>>,
    // The shortest time seen so far in seconds: what takes three times as long is not worth a second look.
    best: RefCell<f64>,
}

impl<'g, O: Op, D: Device> Gate<'g, O, D> {
    /// Draws two sets of inputs with their right answers, and as many sets to be timed on as the policy asks for.
    pub(crate) fn open(
        problem: &'g O::Problem,
        device: &'g D,
        catalog: &'g Catalog<O, D>,
        settings: &'g Settings,
    ) -> Result<Self, Error> {
        let seed = |i: u64| settings.seed.wrapping_mul(0x9e37_79b9).wrapping_add(i);
        let draw = |i| Ok(Arc::new(Drawing::new::<O>(problem, seed(i))?));
        let drawings = (1..=2).map(draw).collect::<Result<Vec<Arc<Drawing>>, Error>>()?;
        let proof = Case::of(problem, device, &drawings[0])?;
        let sets = device.sets(settings.policy, proof.footprint()).max(1);
        let timed = (0..sets as u64)
            .map(|i| Case::without_answer(problem, device, seed(100 + i)))
            .collect::<Result<Vec<Case<O, D>>, Error>>()?;
        let (proof, timed) = (RefCell::new(proof), RefCell::new(timed));
        let (fresh, best) = (OnceCell::new(), RefCell::new(f64::INFINITY));
        Ok(Gate { problem, device, catalog, settings, proof, drawings, fresh, timed, best })
    }

    /// Builds a candidate, proves it right on both sets of inputs, and makes it ready to be timed.
    pub(crate) fn prove(&'g self, candidate: &Candidate, incumbent: bool) -> Result<Entrant<'g, O, D>, Rejection> {
        let unknown = || Rejection::DoesNotBuild { reason: format!("no variant is called {}", candidate.variant) };
        let variant = self.catalog.find(&candidate.variant).ok_or_else(unknown)?;
        let text = O::text(self.problem);
        let request = SandboxRequest { problem: &text, candidate, seed: self.settings.seed };
        self.device.sandbox(&request).unwrap_or(Ok(()))?;
        let kernel: Arc<dyn Kernel<O, D>> = variant.build(self.problem, &candidate.config, self.device)?.into();
        let (error, seconds) = self.prove_right(&*kernel)?;
        if let Some(seconds) = seconds {
            let best = *self.best.borrow();
            if seconds > HOPELESS * best && seconds > SLOW_SECONDS {
                return Err(Rejection::Outpaced { measurement: single(seconds) });
            }
            self.seen(seconds);
        }
        let (device, timed, shared) = (self.device, &self.timed, kernel.clone());
        let sets = timed.borrow().len();
        let launch =
            Box::new(move |queue: &D::Queue, set: usize| timed.borrow_mut()[set].launch(&*shared, device, queue));
        let lap = contained(|| device.lap(self.settings.policy, sets, launch))?;
        let priority = match variant.fit(self.problem, device) {
            Fit::Fits(priority) => priority,
            Fit::Aside(_) => Priority::Low,
        };
        let workspace = contained(|| Ok(kernel.workspace()))?;
        let contender =
            Contender { candidate: candidate.clone(), error, workspace, priority: priority as u8, incumbent };
        Ok(Entrant { contender, kernel, lap })
    }

    /// Proves a kernel on both drawings, one after the other in the same memory: the largest error, and where a launch
    /// is a call the seconds of the faster one. One of two may have been interrupted, and the first finds cold caches.
    fn prove_right(&self, kernel: &dyn Kernel<O, D>) -> Result<(f64, Option<f64>), Rejection> {
        let mut case = self.proof.borrow_mut();
        let (mut error, mut fastest) = (0f64, None::<f64>);
        for drawing in &self.drawings {
            case.refill(self.device, drawing).map_err(|e| Rejection::LaunchFailed { reason: e.to_string() })?;
            let proof = case.verify(kernel, self.device)?;
            error = error.max(proof.error);
            fastest = match (fastest, proof.seconds) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        Ok((error, fastest))
    }

    /// Proves a winner once more after timing, on inputs it has not seen, in memory it was timed on.
    pub(crate) fn prove_again(&self, kernel: &dyn Kernel<O, D>) -> Result<Result<(), Rejection>, Error> {
        let drawing = match self.fresh.get() {
            Some(drawing) => drawing,
            None => {
                let seed = self.settings.seed.wrapping_add(0x5eed_0000);
                let drawing = Arc::new(Drawing::new::<O>(self.problem, seed)?);
                self.fresh.get_or_init(|| drawing)
            }
        };
        let mut timed = self.timed.borrow_mut();
        let case = &mut timed[0];
        case.refill(self.device, drawing)?;
        Ok(case.verify(kernel, self.device).and_then(|_| case.inputs_untouched(self.device)))
    }

    /// Why a candidate is not worth building: what it can do at best is slower than what was seen.
    pub(crate) fn hopeless(&self, candidate: &Candidate) -> Option<String> {
        let variant = self.catalog.find(&candidate.variant)?;
        let floor = variant.floor(self.problem, &candidate.config, &*self.device.ceilings()?)? * IMPOSSIBLE_BELOW;
        (floor > *self.best.borrow()).then(|| "its own roofline is above the best time seen".to_string())
    }

    /// The best time seen was no honest one: it is forgotten.
    pub(crate) fn forget(&self) {
        *self.best.borrow_mut() = f64::INFINITY;
    }

    /// A time was seen.
    pub(crate) fn seen(&self, seconds: f64) {
        let mut best = self.best.borrow_mut();
        *best = best.min(seconds);
    }
}

/// A measurement of one launch alone.
fn single(seconds: f64) -> Measurement {
    let us = seconds * 1e6;
    Measurement { median_us: us, ci_us: [us, us], sigma: 0.0, rounds: 1, batch: 1, samples_us: vec![us] }
}

/// The lanes of a race as its stopwatch, and how many samples went well so far.
pub(crate) struct Lanes<'w, 'g, O: Op, D: Device> {
    pub(crate) entrants: &'w mut [Entrant<'g, O, D>],
    pub(crate) taken: &'w Cell<u64>,
}

impl<O: Op, D: Device> Stopwatch for Lanes<'_, '_, O, D> {
    fn sample(&mut self, lane: usize) -> Result<f64, Rejection> {
        let seconds = contained(|| self.entrants[lane].lap.run())?;
        self.taken.set(self.taken.get() + 1);
        Ok(seconds)
    }

    fn batch(&self, lane: usize) -> u32 {
        self.entrants[lane].lap.batch()
    }

    fn pause(&mut self, seconds: f64) {
        std::thread::sleep(std::time::Duration::from_secs_f64(seconds.clamp(0.0, 1.0)));
    }
}
