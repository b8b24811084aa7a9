//! From a candidate to a kernel: where a key's winner cannot do a problem (a bucket holds other sizes too), who else does.

use crate::candidate::Candidate;
use crate::device::Device;
use crate::engine::settings::Mode;
use crate::engine::tuning_engine::{TuningEngine, is_current};
use crate::engine::{Chosen, How};
use crate::error::Error;
use crate::key::Key;
use crate::model::erased::ErasedProblem;
use crate::ranking::Ranked;
use crate::record::TuningRun;

/// Who is farther behind the winner than this share of its time is no next best: an official library may take thirty
/// times as long.
const CLOSE: f64 = 0.25;

impl<D: Device> TuningEngine<D> {
    /// Builds a candidate for a problem. Where that fails: the next best of its record that is not far behind, the
    /// winner's own kernel at settings near its own, whoever else was right, where nothing is known of the key the first
    /// choice by priority, and at last the reference.
    pub(crate) fn build(
        &self,
        key: &Key,
        erased: &dyn ErasedProblem<D>,
        candidate: &Candidate,
        how: How,
    ) -> Result<Chosen<D>, Error> {
        let attempt = |candidate: &Candidate, how: How| {
            let runner = erased.find(&candidate.variant).filter(|_| self.usable(candidate, erased))?;
            let kernel = runner.build(&candidate.config, &self.device).ok()?;
            Some(Chosen { candidate: candidate.clone(), how, kernel: kernel.into() })
        };
        if let Some(chosen) = attempt(candidate, how) {
            return Ok(chosen);
        }
        let how = How::Default(format!("{candidate} cannot be built for this problem"));
        let edition = if self.settings.mode == Mode::Off { None } else { self.current(key, erased) };
        // Where there is a record, the first choice may be one that was wrong.
        let others = match &edition {
            Some(edition) => self.in_its_place(key, erased, edition),
            None => vec![self.first_choice(erased, "").0],
        };
        let met = |c: &Candidate| edition.as_ref().is_none_or(|e| e.trials.iter().any(|t| t.candidate == *c));
        let mut may = others.iter().filter(|c| met(c) || self.passes(key, erased, c));
        if let Some(chosen) = may.find_map(|other| attempt(other, how.clone())) {
            return Ok(chosen);
        }
        let candidate = self.reference(erased);
        let nothing = |rejection| Error::NothingRight { problem: erased.text(), rejection };
        let kernel = erased.reference().build(&candidate.config, &self.device).map_err(nothing)?;
        Ok(Chosen { candidate, how, kernel: kernel.into() })
    }

    /// Who answers for a problem that an edition's winner cannot do; `None` where it can, or where only the reference is
    /// left.
    pub(crate) fn stand_in(&self, key: &Key, erased: &dyn ErasedProblem<D>, edition: &TuningRun) -> Option<Candidate> {
        let winner = &edition.verdict.winner;
        let others = || self.in_its_place(key, erased, edition).into_iter().find(|other| self.usable(other, erased));
        if is_current(erased, winner) && !self.usable(winner, erased) { others() } else { None }
    }

    /// Who may answer where an edition's winner cannot, in order.
    fn in_its_place(&self, key: &Key, erased: &dyn ErasedProblem<D>, edition: &TuningRun) -> Vec<Candidate> {
        let ranked = edition.ranked();
        let current = |r: &&Ranked<'_>| is_current(erased, &r.trial.candidate);
        let far = ranked.partition_point(|r| r.behind <= CLOSE);
        let named = |part: &[Ranked<'_>]| part.iter().filter(current).map(|r| r.trial.candidate.clone()).collect();
        let (mut all, rest): (Vec<Candidate>, Vec<Candidate>) = (named(&ranked[..far]), named(&ranked[far..]));
        let here = edition.origin == self.store.id();
        let carried = self.carried(erased, &edition.verdict.winner).filter(|_| here);
        all.extend(carried.filter(|c| edition.trials.iter().all(|t| t.candidate != *c || t.is_right())));
        all.extend(rest);
        // Of what came from elsewhere nobody runs that has not passed here.
        all.retain(|other| here || self.has_passed(key, erased, other));
        all
    }

    /// Whether settings that no race has met may run: where candidates must pass in a worker first they do so now, once,
    /// unless nothing may be run beside the caller's own work.
    fn passes(&self, key: &Key, erased: &dyn ErasedProblem<D>, candidate: &Candidate) -> bool {
        let now =
            || self.device.busy(self.device.queue()).is_none() && self.admit_alone(key, erased, candidate).is_ok();
        !self.device.sandboxes()
            || (self.usable(candidate, erased) && (self.has_passed(key, erased, candidate) || now()))
    }

    /// A candidate for a problem of other sizes: its kernel at the legal settings nearest to its own.
    pub(crate) fn carried(&self, erased: &dyn ErasedProblem<D>, candidate: &Candidate) -> Option<Candidate> {
        let runner = erased.find(&candidate.variant).filter(|_| is_current(erased, candidate))?;
        let config = runner.space(&self.device).nearest(&candidate.config)?;
        Some(Candidate { config, ..candidate.clone() })
    }
}
