//! Candidates that are tried in a process of their own, and what is remembered of them: a Candidate comes in; that it
//! passed, or why it is not tried again, goes out.

use super::{Gate, LONGEST};
use crate::candidate::Candidate;
use crate::device::Device;
use crate::engine::settings::Running;
use crate::measure::CacheState;
use crate::prove::quarantine::{self, PUT_AWAY};
use crate::prove::sandbox::{Passed, SandboxRequest};
use crate::rejection::Rejection;

/// Launches in a worker may take this many times the best time known, and at least these seconds.
const PATIENCE: f64 = 30.0;
const SHORTEST: f64 = 0.5;

/// Who was late once has this many times as long the second time.
const SECOND_PATIENCE: f64 = 4.0;

impl<D: Device> Gate<'_, D> {
    /// Proves a candidate as a race would, in a worker or here, and remembers that it passed or why it did not.
    pub(crate) fn admit(&self, candidate: &Candidate) -> Result<(), Rejection> {
        if let Some(held) = self.quarantine.as_ref().and_then(|q| q.find(candidate)) {
            return Err(held.rejection);
        }
        if self.sandbox(candidate)?.is_some() {
            return Ok(());
        }
        let unknown = || Rejection::DoesNotBuild { reason: format!("no variant is called {}", candidate.variant) };
        let runner = self.problem.find(&candidate.variant).ok_or_else(unknown)?;
        let kernel = self.judged(candidate, runner.build(&candidate.config, self.device))?;
        let (error, seconds) =
            self.prove_right(candidate, &*kernel).inspect_err(|why| self.put_away(candidate, why))?;
        if let Some(proofs) = &self.proofs {
            proofs.add(candidate, Passed { error, seconds: seconds.unwrap_or(0.0) });
        }
        Ok(())
    }

    /// What a candidate showed in a worker, now or when its key was raced before; `None` where it is to be proved here.
    pub(super) fn sandbox(&self, candidate: &Candidate) -> Result<Option<Passed>, Rejection> {
        if let Some(passed) = self.proofs.as_ref().and_then(|p| p.find(candidate)) {
            return Ok(Some(passed));
        }
        let trusted = self.problem.is_baseline(&candidate.variant);
        let (wanted, patience) = self.patience_with(candidate);
        let mut request = SandboxRequest {
            problem: self.problem.text(),
            candidate: candidate.clone(),
            seed: self.settings.seed,
            policy: self.settings.policy,
            patience,
            trusted,
        };
        let mut outcome = self.problem.sandbox(&request, self.device).transpose();
        if patience >= wanted && patience < LONGEST && matches!(outcome, Err(Rejection::TimedOut { .. })) {
            // Somebody else may have had the machine: nobody is put away for being late once.
            let left = self.running.map_or(LONGEST, Running::left).max(SHORTEST);
            request.patience = (SECOND_PATIENCE * wanted).min(LONGEST).min(left);
            outcome = self.problem.sandbox(&request, self.device).transpose();
        }
        if patience < wanted && matches!(outcome, Err(Rejection::TimedOut { .. })) {
            // It was the budget that ended it, which says nothing against it.
            return outcome;
        }
        if let Some(proofs) = self.proofs.as_ref().filter(|_| !matches!(outcome, Ok(None))) {
            proofs.tried(candidate);
        }
        match (&outcome, &self.proofs) {
            (Ok(Some(passed)), Some(proofs)) => proofs.add(candidate, *passed),
            (Err(rejection), proofs) => {
                // A library's proposal that cannot be built there never can be; own kernels are passed over by variant.
                let lasts = trusted && matches!(rejection, Rejection::DoesNotBuild { .. });
                if let Some(proofs) = proofs.as_ref().filter(|_| lasts) {
                    proofs.refuse(candidate);
                }
                self.put_away(candidate, rejection);
            }
            _ => {}
        }
        outcome
    }

    /// Seconds after which launches of a candidate count as hung: how many it should have, and how many there are.
    pub(super) fn patience_with(&self, candidate: &Candidate) -> (f64, f64) {
        let trusted = self.problem.is_baseline(&candidate.variant);
        let wanted = if trusted { LONGEST } else { self.patience() };
        (wanted, wanted.min(self.running.map_or(LONGEST, Running::left).max(SHORTEST)))
    }

    /// Puts a candidate away that failed in a process of its own, unless it was the budget that ended it.
    pub(crate) fn judged<T>(&self, candidate: &Candidate, outcome: Result<T, Rejection>) -> Result<T, Rejection> {
        if let Some(rejection) = outcome.as_ref().err().filter(|_| self.device.is_walled()) {
            let (wanted, patience) = self.patience_with(candidate);
            if patience >= wanted || !matches!(rejection, Rejection::TimedOut { .. }) {
                self.put_away(candidate, rejection);
            }
        }
        outcome
    }

    /// Seconds after which launches count as hung.
    fn patience(&self) -> f64 {
        let cold = self.settings.policy.cache == CacheState::Cold;
        let floor = || self.problem.least(&*self.device.ceilings()?, cold);
        let best = *self.best.borrow();
        let expected = if best.is_finite() { best } else { floor().unwrap_or(LONGEST) };
        (PATIENCE * expected).clamp(SHORTEST, LONGEST)
    }

    /// A candidate failed where only those race that passed in a worker: it is not tried again.
    pub(crate) fn put_away(&self, candidate: &Candidate, rejection: &Rejection) {
        if let Some(proofs) = &self.proofs {
            proofs.remove(candidate);
        }
        // Somebody must be left to fall back on.
        let needed = self.is_last_resort(candidate);
        if let Some(quarantine) = self.quarantine.as_ref().filter(|_| quarantine::deserved(rejection) && !needed) {
            quarantine.put(candidate, rejection, &self.problem.text());
        }
    }

    /// Whether a candidate is the reference as it is without tuning, which answers when everyone else has failed.
    fn is_last_resort(&self, candidate: &Candidate) -> bool {
        let reference = self.problem.reference();
        let usual = || reference.space(self.device).default_config();
        reference.id() == candidate.variant && usual().is_none_or(|config| config == candidate.config)
    }

    /// Whether a candidate passed in a worker.
    pub(crate) fn is_promoted(&self, candidate: &Candidate) -> bool {
        self.proofs.as_ref().is_some_and(|p| p.find(candidate).is_some())
    }

    /// Whether a candidate is a library's.
    pub(crate) fn is_library(&self, candidate: &Candidate) -> bool {
        self.problem.find(&candidate.variant).is_some_and(|runner| runner.is_library())
    }

    /// Why a candidate is not tried, if it is in quarantine.
    pub(crate) fn quarantined(&self, candidate: &Candidate) -> Option<String> {
        let result = self.quarantine.as_ref()?.find(candidate)?;
        Some(format!("{PUT_AWAY}: {}", result.rejection))
    }

    /// Why a candidate is not tried, if its key was raced to its end before without it.
    pub(crate) fn passed_over(&self, candidate: &Candidate) -> Option<String> {
        let proofs = self.proofs.as_ref().filter(|_| !self.settings.again)?;
        if proofs.refused(candidate) && self.problem.reference().id() != candidate.variant {
            return Some("it could not be built in a worker before".to_string());
        }
        let over = !self.problem.is_baseline(&candidate.variant) && proofs.passed_over(candidate);
        over.then(|| "the key was raced to its end without it before".to_string())
    }

    /// Keeps who passed for the next race of the key.
    pub(crate) fn keep(&self, whole: bool) {
        if let Some(proofs) = &self.proofs {
            proofs.ended(whole);
            proofs.keep();
        }
    }
}
