//! Admission: a candidate that a record names comes in; whether it may run here goes out. What was raced here may. What
//! came from elsewhere, or was raced under other code or versions, is a proposal: it passes the gate before its first
//! use, and a note of the store, which no bundle carries, remembers that it did.

use std::time::Duration;

use crate::candidate::Candidate;
use crate::device::Device;
use crate::engine::How;
use crate::engine::run::renewed;
use crate::engine::settings::Running;
use crate::engine::tuning_engine::TuningEngine;
use crate::error::Error;
use crate::key::Key;
use crate::model::erased::ErasedProblem;
use crate::model::roofline::IMPOSSIBLE_BELOW;
use crate::prove::cost_probe::CostProbe;
use crate::prove::gate::Gate;
use crate::prove::proof_cache::ProofCache;
use crate::prove::quarantine::Quarantine;
use crate::record::TuningRun;
use crate::rejection::Rejection;

/// How long somebody who needs a proof waits for others at the same key: they may be proving the very same.
const PATIENCE: Duration = Duration::from_secs(10);

impl<D: Device> TuningEngine<D> {
    /// Whether the winner of an edition that was found so may run here as things are: it was raced here, on this device
    /// with the code and versions there are now, or it has passed, or the user asks for no proof of what was signed.
    pub(crate) fn is_admitted(
        &self,
        key: &Key,
        erased: &dyn ErasedProblem<D>,
        (edition, how): (&TuningRun, &How),
    ) -> bool {
        let raced_here = *how == How::Stored && edition.origin == self.store.id();
        let vouched = || *how == How::Stored && self.store.needs_no_proof(edition);
        raced_here || self.has_passed(key, erased, &edition.verdict.winner) || vouched()
    }

    /// Whether a candidate passed here before, with the code, driver and compiler there are now.
    pub(crate) fn has_passed(&self, key: &Key, erased: &dyn ErasedProblem<D>, candidate: &Candidate) -> bool {
        // The reference answers where nobody else can, and is judged by its own tests.
        let passed = |c| ProofCache::of(&self.store, self.device.fingerprint(), key).find(&c).is_some();
        renewed(erased, candidate.clone()).is_some_and(|c| c == self.reference(erased) || passed(c))
    }

    /// Lets a candidate pass the gate, unless it has before. Nothing is timed. Called with the key's lock held.
    pub(crate) fn admit(&self, key: &Key, erased: &dyn ErasedProblem<D>, candidate: &Candidate) -> Result<(), Error> {
        let raced = &*erased.representative(&self.settings.bucket);
        let refused = |rejection| Error::Launch { problem: raced.text(), rejection };
        let gone = || refused(Rejection::DoesNotBuild { reason: format!("{candidate} is no candidate here") });
        if self.has_passed(key, erased, candidate) {
            return Ok(());
        }
        let candidate = renewed(raced, candidate.clone()).filter(|c| self.usable(c, raced)).ok_or_else(gone)?;
        let running = Running::start(&self.settings);
        let probe = CostProbe::new(raced, &*self.device, self.settings.seed);
        self.affords(&running, raced, probe.as_ref().map_or(0.0, CostProbe::opening))?;
        let (store, device) = (&self.store, self.device.fingerprint());
        let gate = Gate::untimed(raced, &*self.device, &self.settings)
            .remembering(Quarantine::of(store, device, raced.op()), ProofCache::of(store, device, key))
            .within(&running, probe);
        let outcome = gate.admit(&candidate).map_err(refused);
        gate.keep(false);
        outcome
    }

    /// As [`TuningEngine::admit`] for somebody who holds no lock: a store that answers never waits for long.
    pub(crate) fn admit_alone(
        &self,
        key: &Key,
        erased: &dyn ErasedProblem<D>,
        candidate: &Candidate,
    ) -> Result<(), Error> {
        let _flight = self.store.try_lock(key, self.device.fingerprint(), PATIENCE);
        self.admit(key, erased, candidate)
    }

    /// An edition that would answer for a key, were it raced here, once its winner has passed. Times that this device
    /// cannot reach are nobody's.
    pub(crate) fn admit_edition(
        &self,
        key: &Key,
        erased: &dyn ErasedProblem<D>,
        edition: TuningRun,
    ) -> Option<TuningRun> {
        let winner = &edition.verdict.winner;
        let refused = |why: &dyn std::fmt::Display| {
            tracing::warn!("{key}: the stored winner {winner} came from elsewhere and is not used: {why}");
        };
        let floor = self.least(erased).map_or(0.0, |seconds| seconds * 1e6 * IMPOSSIBLE_BELOW);
        if edition.verdict.median_us < floor {
            refused(&format_args!("{} us is faster than this device can be", edition.verdict.median_us));
            return None;
        }
        match self.admit(key, erased, winner) {
            Ok(()) => Some(edition),
            Err(why) => {
                refused(&why);
                None
            }
        }
    }
}
