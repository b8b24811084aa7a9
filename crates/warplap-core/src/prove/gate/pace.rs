//! Who keeps up: times that were seen come in; who is not worth a launch, or a second one, goes out.

use super::{FAR, Gate, SLOW_SECONDS};
use crate::candidate::Candidate;
use crate::device::Device;
use crate::measure::Measurement;
use crate::model::roofline::IMPOSSIBLE_BELOW;
use crate::prove::cost_probe::QUICK;
use crate::rejection::Rejection;

/// A candidate whose first launch takes this many times the best seen, and [`SLOW_SECONDS`], is not launched again.
const HOPELESS: f64 = 3.0;

/// Why a candidate is not built that by the ceilings cannot win.
pub(crate) const HOPELESS_BY_ROOFLINE: &str = "its own roofline is above the best time seen";

/// Why a candidate is not launched.
pub(crate) enum TooLong {
    /// The budget has no time for its proof.
    NoTime,
    /// It is far behind on a smaller problem.
    FarBehind,
}

impl<D: Device> Gate<'_, D> {
    /// What takes three times as long as the best is not worth a second look.
    pub(super) fn keeps_up(&self, seconds: f64) -> Result<(), Rejection> {
        let slow =
            self.settings.objective.is_time() && seconds > HOPELESS * *self.best.borrow() && seconds > SLOW_SECONDS;
        if slow { Err(Rejection::Outpaced { measurement: single(seconds) }) } else { Ok(()) }
    }

    /// Why a candidate is not worth building: what it can do at best is slower than what was seen.
    pub(crate) fn hopeless(&self, candidate: &Candidate) -> Option<String> {
        if !self.settings.objective.is_time() || self.ceilings_are_too_low.get() {
            return None;
        }
        let runner = self.problem.find(&candidate.variant)?;
        let floor = runner.floor(&candidate.config, &*self.device.ceilings()?)? * IMPOSSIBLE_BELOW;
        (floor > *self.best.borrow()).then(|| HOPELESS_BY_ROOFLINE.to_string())
    }

    /// Somebody right was faster than measured ceilings allow: nobody is left out by them any more.
    pub(crate) fn doubt_ceilings(&self) {
        self.ceilings_are_too_low.set(true);
    }

    /// Why a candidate is not launched, by what it takes on a smaller problem: there is no time for it, or it is far
    /// behind and nobody wants to know by how much.
    pub(crate) fn takes_too_long(&self, candidate: &Candidate) -> Option<TooLong> {
        let best = *self.best.borrow();
        let (probe, running) = (self.probe.as_ref().filter(|_| best.is_finite())?, self.running?);
        let likely = probe.likely(candidate, QUICK)?;
        // Two proofs and a launch to see how many a sample needs.
        if !running.affords(2.0 * likely.proof + likely.launch) {
            return Some(TooLong::NoTime);
        }
        let far = likely.launch > FAR * best && likely.launch > SLOW_SECONDS && self.settings.objective.is_time();
        (far && !self.problem.is_baseline(&candidate.variant)).then_some(TooLong::FarBehind)
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
    let samples_us = vec![us];
    Measurement { median_us: us, ci_us: [us, us], rounds: 1, batch: 1, samples_us, ..Measurement::default() }
}
