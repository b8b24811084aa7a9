//! The gate: a Candidate comes in; a built kernel that was proved right, ready to be timed, goes out, or a Rejection.

use std::cell::RefCell;
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
use crate::verify::{Case, contained};

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
    proofs: RefCell<Vec<Case<O, D>>>,
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
        let proofs =
            (1..=2).map(|i| Case::new(problem, device, seed(i))).collect::<Result<Vec<Case<O, D>>, Error>>()?;
        let sets = device.sets(settings.policy, proofs[0].footprint()).max(1);
        let timed = (0..sets as u64)
            .map(|i| Case::without_answer(problem, device, seed(100 + i)))
            .collect::<Result<Vec<Case<O, D>>, Error>>()?;
        let (proofs, timed) = (RefCell::new(proofs), RefCell::new(timed));
        Ok(Gate { problem, device, catalog, settings, proofs, timed, best: RefCell::new(f64::INFINITY) })
    }

    /// Builds a candidate, proves it right on both sets of inputs, and makes it ready to be timed.
    pub(crate) fn prove(&'g self, candidate: &Candidate, incumbent: bool) -> Result<Entrant<'g, O, D>, Rejection> {
        let unknown = || Rejection::DoesNotBuild { reason: format!("no variant is called {}", candidate.variant) };
        let variant = self.catalog.find(&candidate.variant).ok_or_else(unknown)?;
        let text = O::text(self.problem);
        let request = SandboxRequest { problem: &text, candidate, seed: self.settings.seed };
        self.device.sandbox(&request).unwrap_or(Ok(()))?;
        let kernel: Arc<dyn Kernel<O, D>> =
            contained(|| variant.build(self.problem, &candidate.config, self.device))?.into();
        let mut error = 0f64;
        for case in self.proofs.borrow_mut().iter_mut() {
            let proof = case.verify(&*kernel, self.device)?;
            error = error.max(proof.error);
            if let Some(seconds) = proof.seconds {
                let best = *self.best.borrow();
                if seconds > HOPELESS * best && seconds > SLOW_SECONDS {
                    return Err(Rejection::Outpaced { measurement: single(seconds) });
                }
                self.seen(seconds);
            }
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
        let contender = Contender {
            candidate: candidate.clone(),
            error,
            workspace: kernel.workspace(),
            priority: priority as u8,
            incumbent,
        };
        Ok(Entrant { contender, kernel, lap })
    }

    /// Proves a winner once more after timing, on inputs it has not seen.
    pub(crate) fn prove_again(&self, kernel: &dyn Kernel<O, D>) -> Result<Result<(), Rejection>, Error> {
        let fresh = self.settings.seed.wrapping_add(0x5eed_0000);
        Ok(Case::<O, D>::new(self.problem, self.device, fresh)?.verify(kernel, self.device).map(|_| ()))
    }

    /// Why a candidate is not worth building: what it can do at best is slower than what was seen.
    pub(crate) fn hopeless(&self, candidate: &Candidate) -> Option<String> {
        let variant = self.catalog.find(&candidate.variant)?;
        let floor = variant.floor(self.problem, &candidate.config, self.device.ceilings()?)? * IMPOSSIBLE_BELOW;
        (floor > *self.best.borrow()).then(|| "its own roofline is above the best time seen".to_string())
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

/// The lanes of a race as its stopwatch.
pub(crate) struct Lanes<'w, 'g, O: Op, D: Device>(pub(crate) &'w mut [Entrant<'g, O, D>]);

impl<O: Op, D: Device> Stopwatch for Lanes<'_, '_, O, D> {
    fn sample(&mut self, lane: usize) -> Result<f64, Rejection> {
        contained(|| self.0[lane].lap.run())
    }

    fn batch(&self, lane: usize) -> u32 {
        self.0[lane].lap.batch()
    }

    fn pause(&mut self, seconds: f64) {
        std::thread::sleep(std::time::Duration::from_secs_f64(seconds.clamp(0.0, 1.0)));
    }
}
