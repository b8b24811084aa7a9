//! Tuning one key, from a miss to its record: `tune_until` is the whole way, and each stage is a function below it or in
//! `contest_key.rs`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::candidate::Candidate;
use crate::contest::verdict::Grade;
use crate::device::Device;
use crate::engine::contest_key::{Contested, KnownBefore};
use crate::engine::known::provisional::better;
use crate::engine::known::sizes::other_size;
use crate::engine::progress::Observer;
use crate::engine::settings::Running;
use crate::engine::tuning_engine::{TuningEngine, is_current, locked};
use crate::engine::{How, Tuned, log};
use crate::error::Error;
use crate::key::Key;
use crate::measure::timing::Timing;
use crate::model::erased::ErasedProblem;
use crate::model::roofline::Work;
use crate::record::TuningRun;
use crate::store::{ASKING, BEFORE_A_RACE, Match};

/// The share of a budget that measuring ceilings may take.
pub(crate) const CEILINGS_SHARE: f64 = 0.5;

impl<D: Device> TuningEngine<D> {
    /// Tunes the key of a problem, or answers from the store: one tuner per key, over threads and processes. What is
    /// new in the catalog since races against the stored winner alone, and a provisional record is gone on with.
    pub fn tune(&self, erased: &dyn ErasedProblem<D>, observer: &dyn Observer) -> Result<Tuned, Error> {
        self.tune_until(Grade::is_provisional, erased, observer)
    }

    /// As [`TuningEngine::tune`], but what is known answers at once, provisional or not.
    pub fn ensure(&self, erased: &dyn ErasedProblem<D>, observer: &dyn Observer) -> Result<Tuned, Error> {
        self.tune_until(|_| false, erased, observer)
    }

    /// The way of a miss: lookup → wait for the lock → admit what came from elsewhere → ceilings → race (list, prune,
    /// search, build, prove, measure, judge) → record → answer. What is known with a grade that is not `open` answers.
    fn tune_until(
        &self,
        open: fn(Grade) -> bool,
        erased: &dyn ErasedProblem<D>,
        observer: &dyn Observer,
    ) -> Result<Tuned, Error> {
        let key = self.key(erased);
        let erased = &*erased.representative(&self.settings.bucket);
        let timing = Timing::default();
        let stored = |run| Ok(Tuned { stages: timing.take(), ..self.answer(key.clone(), erased, run, true, None) });

        let before = timing.of("lookup", || self.look_up_near_and_far(&key, erased));
        if let Some(known) = before.clone().filter(|run| !open(run.verdict.grade)) {
            return stored(known);
        }
        self.refuse_while_busy(&key, erased)?;
        let turn = timing.of("wait", || self.turn(&key, observer));
        if let Some(other) = self.tuned_meanwhile(&key, erased, before.as_ref(), open) {
            return stored(other);
        }
        if let Some(admitted) = timing.of("admit", || self.admit_proposal(&key, erased, open)) {
            return stored(admitted);
        }
        log::started(erased, &self.settings);
        let running = Running::start(&self.settings);
        self.take_ceilings(erased, &timing);
        let raced = self.race(&key, erased, observer, &timing, &running);
        log::ended(erased, raced.as_ref().map(|(run, _)| run), running.seconds());
        let (run, note) = raced?;
        let warning = self.keep(&key, erased, &run, &timing);
        let (stages, note) = (timing.take(), turn.note.or(note));
        tracing::debug!("{}: {stages:?}", erased.text());
        Ok(Tuned { stages, note, ..self.answer(key, erased, run, false, warning) })
    }

    /// What answers for a key: from this store, or else from the far one.
    fn look_up_near_and_far(&self, key: &Key, erased: &dyn ErasedProblem<D>) -> Option<TuningRun> {
        let near = || self.settled(key, erased).filter(|_| !self.settings.again);
        near().or_else(|| {
            self.ask(key, ASKING);
            near()
        })
    }

    /// Where nothing may be measured now (a capture), the key is counted as missed.
    fn refuse_while_busy(&self, key: &Key, erased: &dyn ErasedProblem<D>) -> Result<(), Error> {
        let Some(why) = self.device.busy(self.device.queue()) else { return Ok(()) };
        self.store.miss(key, self.device.fingerprint(), &erased.text());
        Err(Error::Device(format!("nothing may be measured now: {why}")))
    }

    /// Whoever held the lock may have tuned the key meanwhile, here or on another machine.
    fn tuned_meanwhile(
        &self,
        key: &Key,
        erased: &dyn ErasedProblem<D>,
        before: Option<&TuningRun>,
        open: fn(Grade) -> bool,
    ) -> Option<TuningRun> {
        self.ask(key, BEFORE_A_RACE);
        let run = self.settled(key, erased).filter(|_| !self.settings.again)?;
        (!open(run.verdict.grade) || before != Some(&run)).then_some(run)
    }

    /// What came from elsewhere answers once it has passed here.
    fn admit_proposal(&self, key: &Key, erased: &dyn ErasedProblem<D>, open: fn(Grade) -> bool) -> Option<TuningRun> {
        let proposed = self.standing(key, erased).filter(|e| !self.settings.again && !open(e.verdict.grade))?;
        self.admit_edition(key, erased, proposed)
    }

    /// Where nobody knows the work there is no floor under it, and nothing to measure ceilings for.
    fn take_ceilings(&self, erased: &dyn ErasedProblem<D>, timing: &Timing) {
        if erased.work() != Work::default() {
            let patience = self.settings.budget.seconds * CEILINGS_SHARE;
            timing.of("ceilings", || self.device.get_ready(&self.store, patience));
        }
    }

    /// Keeps an edition and publishes it. Gives what went wrong: then it answers for as long as this process lives.
    pub(crate) fn keep(
        &self,
        key: &Key,
        erased: &dyn ErasedProblem<D>,
        edition: &TuningRun,
        timing: &Timing,
    ) -> Option<String> {
        locked(&self.known.sizes).remove(&key.text);
        let put = || self.store.put(key, self.device.fingerprint(), edition.clone(), &erased.text());
        let kept = timing.of("record", put);
        // Whoever waits for this key on another machine finds it there when the lock is free.
        if self.store.far().is_some() {
            timing.of("publish", || self.store.publish());
        }
        let warning = kept.err().map(|e| format!("the record of {key} was not kept: {e}"));
        let mut unkept = locked(&self.unkept);
        match &warning {
            Some(warning) => {
                tracing::warn!("{warning}");
                unkept.insert(key.text.clone(), edition.clone());
            }
            None => drop(unkept.remove(&key.text)),
        }
        warning
    }

    /// Asks the far side of the store for a key that is not known here.
    pub(crate) fn ask(&self, key: &Key, wait: Duration) {
        if !self.settings.again {
            self.store.ask(key, self.device.fingerprint(), wait);
        }
    }

    pub(crate) fn answer(
        &self,
        key: Key,
        erased: &dyn ErasedProblem<D>,
        edition: TuningRun,
        from_store: bool,
        warning: Option<String>,
    ) -> Tuned {
        let how = if from_store { How::Stored } else { How::Raced };
        let winner = &edition.verdict.winner;
        let before = locked(&self.known.winners).insert(key.text.clone(), (winner.clone(), how));
        let replaced = before.is_some_and(|(candidate, _)| candidate != *winner);
        let problem = erased.text();
        let raced = if from_store { self.raced_for(&key) } else { None };
        let measured_at = raced.and_then(|raced| other_size(&problem, &raced));
        let stages = Vec::new();
        Tuned { key, problem, measured_at, edition, from_store, note: None, warning, stages, replaced }
    }

    /// The edition measured on this device as it is, as far as it is of candidates that are here, if there is one.
    pub(crate) fn current(&self, key: &Key, erased: &dyn ErasedProblem<D>) -> Option<TuningRun> {
        if let Some(edition) = locked(&self.unkept).get(&key.text) {
            return Some(edition.clone());
        }
        match self.store.lookup(key, self.device.fingerprint()) {
            Match::Exact(record) => self.edition_of(&record, &|c| Self::is_here(erased, c), erased),
            _ => None,
        }
    }

    /// The problem that was raced for a key, where the store knows.
    pub(crate) fn raced_for(&self, key: &Key) -> Option<String> {
        match self.store.lookup(key, self.device.fingerprint()) {
            Match::Exact(record) => Some(record.problem.clone()),
            _ => None,
        }
    }

    /// The edition that answers for a key as things are: it stands, and its winner was proved here.
    fn settled(&self, key: &Key, erased: &dyn ErasedProblem<D>) -> Option<TuningRun> {
        self.standing(key, erased).filter(|edition| self.is_admitted(key, erased, (edition, &How::Stored)))
    }

    /// The edition of a key whose winner is there, and against which nobody new wants to race.
    pub(crate) fn standing(&self, key: &Key, erased: &dyn ErasedProblem<D>) -> Option<TuningRun> {
        let edition = self.current(key, erased)?;
        let winner = &edition.verdict.winner;
        // A bucket holds other sizes too: the next best answers for those that the winner cannot do.
        let next_best = || {
            let mut right = edition.trials.iter().filter(|t| t.is_right()).map(|t| &t.candidate);
            let other = !self.settings.bucket.is_exact() && self.raced_for(key).is_none_or(|p| p != erased.text());
            other && right.any(|c| is_current(erased, c) && self.usable(c, erased))
        };
        let stands = is_current(erased, winner) && (self.usable(winner, erased) || next_best());
        (stands && self.newcomers(&edition, erased).is_empty()).then_some(edition)
    }

    /// Races what is new or open against the stored winner, or everyone where there is none. Gives what is to be kept,
    /// and a sentence where a record was gone on with.
    fn race(
        &self,
        key: &Key,
        erased: &dyn ErasedProblem<D>,
        observer: &dyn Observer,
        timing: &Timing,
        running: &Running<'_>,
    ) -> Result<(TuningRun, Option<String>), Error> {
        let earlier = self.current(key, erased).filter(|e| is_current(erased, &e.verdict.winner));
        // Another device's winner has no place to defend here.
        let known = || self.lookup(erased, key).filter(|(_, how)| !matches!(how, How::Foreign(_)));
        let incumbent = earlier
            .as_ref()
            .map(|e| e.verdict.winner.clone())
            .or_else(|| known().and_then(|(c, _)| renewed(erased, c)))
            .filter(|c| self.usable(c, erased));
        let kept = earlier.clone().filter(|e| e.origin == self.store.id());
        let earlier = earlier.filter(|_| !self.settings.again && incumbent.is_some());
        let known = KnownBefore { incumbent: incumbent.as_ref(), earlier: earlier.as_ref(), part: None };
        let mut contested = self.contest(erased, observer, known, (timing, running))?;
        if let Some(incumbent) = incumbent.filter(|i| earlier.is_some() && contested.outcomes.lost(i)) {
            // The stored winner is not right any more: those it once beat have a claim.
            tracing::warn!("{key}: the stored winner {incumbent} failed; everyone races again");
            contested = self.contest(erased, observer, KnownBefore::default(), (timing, running))?;
        }
        let Contested { outcomes, skipped } = contested;
        let nothing = |rejection| Error::NothingRight { problem: erased.text(), rejection };
        let verdict = outcomes.verdict.map_err(nothing)?;
        let new = TuningRun {
            soft: self.device.fingerprint().versions(),
            origin: self.store.id().to_string(),
            tuned_at: now(),
            program: env!("CARGO_PKG_VERSION").to_string(),
            artifacts: self.artifacts_of(erased, &verdict),
            verdict,
            trials: outcomes.trials,
            skipped,
            work: erased.work(),
            floor_us: outcomes.floor.map(|f| f * 1e6),
            seconds: running.seconds(),
            end_to_end_race: None,
            sizes: Vec::new(),
            vouched: Default::default(),
        };
        let (was, now) = (earlier.map(|e| e.verdict.grade).filter(|g| g.is_provisional()), new.verdict.grade);
        let edition = better(kept, new);
        let went_on =
            was.map(|was| format!("went on with a {} record, now {}", was.word(), edition.verdict.grade.word()));
        let note = match edition.verdict.grade == now {
            true => went_on,
            false => Some(format!(
                "the {} verdict that was kept stands: this one is {}",
                edition.verdict.grade.word(),
                now.word()
            )),
        };
        note.iter().for_each(|note| tracing::info!("{}: {note}", erased.text()));
        Ok((edition, note))
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// A stored candidate with the code there is now.
pub(crate) fn renewed<D: Device>(erased: &dyn ErasedProblem<D>, candidate: Candidate) -> Option<Candidate> {
    let source = erased.find(&candidate.variant)?.source();
    Some(Candidate { source, ..candidate })
}
