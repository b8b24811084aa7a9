//! Tuning one key: the second half of the corridor, from listing to record. A Problem comes in; an Edition goes out.

use std::time::{SystemTime, UNIX_EPOCH};

use super::newcomers::unmet;
use super::provisional::{better, may_win, was_cut};
use super::road::{Road, is_current, locked};
use super::{How, Tuned, telling};
use crate::ahead::Ahead;
use crate::candidate::{Candidate, Outcome, SourceHash, Trial};
use crate::card::Card;
use crate::contest::{Contest, Entered, Outcomes, SPENT};
use crate::device::Device;
use crate::error::Error;
use crate::gate::Gate;
use crate::key::Key;
use crate::ledger::Ledger;
use crate::measure::CacheState;
use crate::progress::{Event, Observer};
use crate::promoted::Promoted;
use crate::prune::prune;
use crate::quarantine::{PUT_AWAY, Quarantine};
use crate::record::{Edition, Skipped};
use crate::rejection::Rejection;
use crate::roofline::{FLOOR_FELL, Work};
use crate::scout::{CAREFUL, Scout};
use crate::search::{self, Arm, Brief, GoingOn};
use crate::settings::Running;
use crate::store::Match;
use crate::timing::Timing;
use crate::verdict::Grade;
use crate::yardstick;

/// The share of a budget that measuring ceilings may take.
const CEILINGS_SHARE: f64 = 0.5;

/// Why a candidate that another machine timed does not race here beside its winner.
const ELSEWHERE: &str = "it lost on the machine the record came from";

/// Launches of a candidate that is timed, at least.
const LAUNCHES: f64 = 2.0;

impl<D: Device> Road<D> {
    /// Tunes the key of a problem, or answers from the store: one tuner per key, over threads and processes. What is
    /// new in the catalog since races against the stored winner alone, and a provisional record is gone on with.
    pub fn tune(&self, card: &dyn Card<D>, observer: &dyn Observer) -> Result<Tuned, Error> {
        self.tune_until(Grade::is_provisional, card, observer)
    }

    /// As [`Road::tune`], but what is known answers at once, provisional or not.
    pub fn ensure(&self, card: &dyn Card<D>, observer: &dyn Observer) -> Result<Tuned, Error> {
        self.tune_until(|_| false, card, observer)
    }

    /// Tunes what is not known, and what is known with a grade that is not `enough`.
    fn tune_until(&self, open: fn(Grade) -> bool, card: &dyn Card<D>, observer: &dyn Observer) -> Result<Tuned, Error> {
        let key = self.key(card);
        let card = &*card.representative(&self.settings.bucket);
        let timing = Timing::default();
        let settled = || timing.of("lookup", || self.settled(&key, card)).filter(|_| !self.settings.again);
        let before = settled();
        if let Some(edition) = before.as_ref().filter(|e| !open(e.verdict.grade)) {
            return Ok(Tuned { stages: timing.take(), ..self.answer(key, card, edition.clone(), true, None) });
        }
        if let Some(why) = self.device.busy(self.device.queue()) {
            self.store.miss(&key, self.device.fingerprint(), &card.text());
            return Err(Error::Device(format!("nothing may be measured now: {why}")));
        }
        let _flight = self.store.lock(&key, self.device.fingerprint());
        // Whoever held the lock may have tuned the key meanwhile.
        if let Some(edition) = settled().filter(|e| !open(e.verdict.grade) || before.as_ref() != Some(e)) {
            return Ok(Tuned { stages: timing.take(), ..self.answer(key, card, edition, true, None) });
        }
        // What came from elsewhere answers once it has passed here.
        let proposed = self.standing(&key, card).filter(|e| !self.settings.again && !open(e.verdict.grade));
        if let Some(edition) = timing.of("admit", || self.admit_edition(&key, card, proposed?)) {
            return Ok(Tuned { stages: timing.take(), ..self.answer(key, card, edition, true, None) });
        }
        telling::started(card, &self.settings);
        let running = Running::start(&self.settings);
        // Where nobody knows the work there is no floor under it, and nothing to measure ceilings for.
        if card.work() != Work::default() {
            let patience = self.settings.budget.seconds * CEILINGS_SHARE;
            timing.of("ceilings", || self.device.get_ready(&self.store, patience));
        }
        let raced = self.race(&key, card, observer, &timing, &running);
        telling::ended(card, raced.as_ref().map(|(edition, _)| edition), running.seconds());
        let (edition, note) = raced?;
        let put = || self.store.put(&key, self.device.fingerprint(), edition.clone(), &card.text());
        let kept = timing.of("record", put);
        let warning = kept.err().map(|e| format!("the record of {key} was not kept: {e}"));
        let mut unkept = locked(&self.unkept);
        match &warning {
            Some(warning) => {
                tracing::warn!("{warning}");
                unkept.insert(key.text.clone(), edition.clone());
            }
            None => drop(unkept.remove(&key.text)),
        }
        drop(unkept);
        let stages = timing.take();
        tracing::debug!("{}: {stages:?}", card.text());
        Ok(Tuned { stages, note, ..self.answer(key, card, edition, false, warning) })
    }

    fn answer(
        &self,
        key: Key,
        card: &dyn Card<D>,
        edition: Edition,
        from_store: bool,
        warning: Option<String>,
    ) -> Tuned {
        let how = if from_store { How::Stored } else { How::Raced };
        let winner = &edition.verdict.winner;
        let before = locked(&self.known.winners).insert(key.text.clone(), (winner.clone(), how));
        let replaced = before.is_some_and(|(candidate, _)| candidate != *winner);
        Tuned { key, problem: card.text(), edition, from_store, note: None, warning, stages: Vec::new(), replaced }
    }

    /// The edition measured under this soft fingerprint, if there is one.
    pub(super) fn current(&self, key: &Key) -> Option<Edition> {
        if let Some(edition) = locked(&self.unkept).get(&key.text) {
            return Some(edition.clone());
        }
        match self.store.lookup(key, self.device.fingerprint()) {
            Match::Exact(record) => record.current(&self.device.fingerprint().soft_id(), self.store.id()).cloned(),
            _ => None,
        }
    }

    /// The problem that was raced for a key, where the store knows.
    fn raced_for(&self, key: &Key) -> Option<String> {
        match self.store.lookup(key, self.device.fingerprint()) {
            Match::Exact(record) => Some(record.problem.clone()),
            _ => None,
        }
    }

    /// The edition that answers for a key as things are: it stands, and its winner was proved here.
    fn settled(&self, key: &Key, card: &dyn Card<D>) -> Option<Edition> {
        self.standing(key, card).filter(|edition| self.is_admitted(key, card, (edition, &How::Stored)))
    }

    /// The edition of a key whose winner is there, and against which nobody new wants to race.
    pub(super) fn standing(&self, key: &Key, card: &dyn Card<D>) -> Option<Edition> {
        let edition = self.current(key)?;
        let winner = &edition.verdict.winner;
        // A bucket holds other sizes too: the next best answers for those that the winner cannot do.
        let next_best = || {
            let mut right = edition.trials.iter().filter(|t| t.is_right()).map(|t| &t.candidate);
            let other = !self.settings.bucket.is_exact() && self.raced_for(key).is_none_or(|p| p != card.text());
            other && right.any(|c| is_current(card, c) && self.usable(c, card))
        };
        let stands = is_current(card, winner) && (self.usable(winner, card) || next_best());
        (stands && self.newcomers(&edition, card).is_empty()).then_some(edition)
    }

    /// Races what is new or open against the stored winner, or everyone where there is none. Gives what is to be kept,
    /// and a sentence where a record was gone on with.
    fn race(
        &self,
        key: &Key,
        card: &dyn Card<D>,
        observer: &dyn Observer,
        timing: &Timing,
        running: &Running<'_>,
    ) -> Result<(Edition, Option<String>), Error> {
        let earlier = self.current(key).filter(|e| is_current(card, &e.verdict.winner));
        // Another device's winner has no place to defend here.
        let known = || self.lookup(card, key).filter(|(_, how)| !matches!(how, How::Foreign(_)));
        let incumbent = earlier
            .as_ref()
            .map(|e| e.verdict.winner.clone())
            .or_else(|| known().and_then(|(c, _)| renewed(card, c)))
            .filter(|c| self.usable(c, card));
        let kept = earlier.clone().filter(|e| e.origin == self.store.id());
        let earlier = earlier.filter(|_| !self.settings.again && incumbent.is_some());
        let mut contested = self.contest(card, observer, incumbent.as_ref(), earlier.as_ref(), (timing, running))?;
        if let Some(incumbent) = incumbent.filter(|i| earlier.is_some() && contested.outcomes.lost(i)) {
            // The stored winner is not right any more: those it once beat have a claim.
            tracing::warn!("{key}: the stored winner {incumbent} failed; everyone races again");
            contested = self.contest(card, observer, None, None, (timing, running))?;
        }
        let Contested { outcomes, skipped, floor } = contested;
        let nothing = |rejection| Error::NothingRight { problem: card.text(), rejection };
        let new = Edition {
            soft: self.device.fingerprint().soft.clone(),
            origin: self.store.id().to_string(),
            tuned_at: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
            program: env!("CARGO_PKG_VERSION").to_string(),
            verdict: outcomes.verdict.map_err(nothing)?,
            trials: outcomes.trials,
            skipped,
            work: card.work(),
            floor_us: floor.map(|f| f * 1e6),
            seconds: running.seconds(),
            last_heat: None,
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
        note.iter().for_each(|note| tracing::info!("{}: {note}", card.text()));
        Ok((edition, note))
    }

    /// One contest, and a second one where right candidates were faster than ceilings that turn out to be too low.
    fn contest(
        &self,
        card: &dyn Card<D>,
        observer: &dyn Observer,
        incumbent: Option<&Candidate>,
        earlier: Option<&Edition>,
        (timing, running): (&Timing, &Running<'_>),
    ) -> Result<Contested, Error> {
        let floor = self.floor(card);
        let first = self.contest_above(floor, card, observer, (incumbent, earlier), (timing, running))?;
        let (Some(before), true) = (floor, first.outcomes.beat_physics() && !self.settings.stop.said()) else {
            return Ok(first);
        };
        if first.outcomes.verdict.is_ok() && running.left() < CEILINGS_SHARE * self.settings.budget.seconds {
            return Ok(first);
        }
        self.device.measure_again(&self.store);
        match self.floor(card) {
            Some(now) if now < before * FLOOR_FELL => {
                let mut second =
                    self.contest_above(Some(now), card, observer, (incumbent, earlier), (timing, running))?;
                if second.outcomes.verdict.is_err() {
                    return Ok(first);
                }
                second.take_over(first.outcomes.trials);
                Ok(second)
            }
            _ => Ok(first),
        }
    }

    /// The least seconds a problem can take by the device's ceilings.
    pub(crate) fn floor(&self, card: &dyn Card<D>) -> Option<f64> {
        let cold = self.settings.policy.cache == CacheState::Cold;
        self.device.ceilings().and_then(|c| card.least(&c, cold))
    }

    /// Whether there is time for what cannot be left out.
    pub(super) fn affords(&self, running: &Running<'_>, card: &dyn Card<D>, needed: f64) -> Result<(), Error> {
        if needed == 0.0 || running.affords(needed) {
            return Ok(());
        }
        Err(Error::NoTime { problem: card.text(), needed, budget: self.settings.budget.seconds })
    }

    /// Listing, pruning, search, gate, race, verdict.
    fn contest_above(
        &self,
        floor: Option<f64>,
        card: &dyn Card<D>,
        observer: &dyn Observer,
        (incumbent, earlier): (Option<&Candidate>, Option<&Edition>),
        (timing, running): (&Timing, &Running<'_>),
    ) -> Result<Contested, Error> {
        let scout = Scout::new(card, &*self.device, self.settings.seed);
        self.affords(running, card, scout.as_ref().map_or(0.0, Scout::opening))?;
        let promoted = Promoted::of(&self.store, self.device.fingerprint(), &self.key(card));
        if promoted.is_empty() {
            card.call_worker(&self.device);
        }
        // Asking who fits may open a library: inputs are drawn meanwhile.
        let (listing, gate) = std::thread::scope(|scope| {
            let listing = scope.spawn(|| {
                let timing = Timing::default();
                (timing.of("list", || card.list(&self.device)), timing.take())
            });
            let gate = timing.of("draw", || Gate::open(card, &*self.device, &self.settings));
            (listing.join(), gate)
        });
        let unlisted = || Error::Device(format!("{}: who fits could not be asked", card.text()));
        let ((listed, aside), listing) = listing.map_err(|_| unlisted())?;
        timing.merge(listing);
        let first = listed.first().and_then(|l| Some((l.runner, l.runner.space(&self.device).default_config()?)));
        if let (Some(scout), Some((runner, config))) = (&scout, first) {
            let first = Candidate { variant: runner.id().into(), config, source: runner.source() };
            // It is proved, timed, and proved again.
            let least = scout.likely(&first, CAREFUL).map_or(0.0, |l| 2.0 * l.proof + LAUNCHES * l.launch);
            self.affords(running, card, scout.opening() + least)?;
        }
        let mut pruned = timing.of("prune", || prune(&listed, &self.device));
        let open = earlier.filter(|e| e.verdict.grade.is_provisional());
        let mut again: Vec<Candidate> = open.map(may_win).unwrap_or_default();
        again.retain(|c| is_current(card, c) && self.usable(c, card));
        if let Some(edition) = earlier.filter(|_| !open.is_some_and(was_cut)) {
            let new = self.newcomers(edition, card);
            pruned.arms.retain(|arm| new.contains(&arm.variant));
            pruned.arms = pruned.arms.into_iter().map(|arm| unmet(arm, edition)).collect();
        }
        if self.settings.yardsticks {
            yardstick::lift(&mut pruned.arms, |id| card.is_yardstick(id));
        }
        // What was tried and does not race again is not asked for.
        let tried = |arm: &Arm| {
            let trials = open.iter().flat_map(|e| &e.trials).filter(|t| !t.is_unseen());
            let own = trials.filter(|t| t.candidate.variant == arm.variant && t.candidate.source == arm.source);
            own.filter(|t| !again.contains(&t.candidate)).count() as u64
        };
        let entered: Vec<Entered> = pruned.arms.iter().map(|arm| Entered::of(arm, tried(arm))).collect();
        let candidates = entered.iter().map(|e| usize::try_from(e.configs).unwrap_or(usize::MAX)).sum();
        observer.event(&Event::Started { problem: &card.text(), candidates });

        let name = &self.settings.search;
        // A floor says how far a time is from the best there can be, and nothing of other objectives.
        let floor_us = floor.map(|f| f * 1e6).filter(|_| self.settings.objective.is_time());
        let elsewhere = self.elsewhere(card);
        let donors = elsewhere.iter().take(search::DONORS).map(|(candidate, _)| candidate.clone()).collect();
        let brief = Brief { seed: self.settings.seed, floor_us, defaults: true, donors, elsewhere };
        let mut search = search::named(name, pruned.arms, &brief).ok_or_else(|| {
            Error::Unknown(format!("there is no search '{name}': expected one of {}", search::names().join(", ")))
        })?;
        if let Some(edition) = open {
            search = Box::new(GoingOn::new(again, &edition.trials, search));
        }
        let store = &self.store;
        let quarantine = Quarantine::of(store, self.device.fingerprint(), card.op());
        let gate = gate?.remembering(quarantine, promoted).within(running, scout);
        let ahead = Ahead::new(card, &*self.device).until(running);
        let mut outcomes = Contest::new(&gate, &ahead, &*self.device, &self.settings, running, observer)
            .with_floor(floor)
            .with_incumbent(incumbent.cloned())
            .with_ledger(earlier.filter(|e| e.origin == store.id()).map(Ledger::of).unwrap_or_default())
            .with_reference(Some(self.reference(card)))
            .run(&mut *search, &entered)?;
        timing.merge(gate.timing.take());
        let mut skipped: Vec<Skipped> = aside.into_iter().chain(pruned.skipped).collect();
        skipped.append(&mut outcomes.skipped);
        if let Some(edition) = earlier {
            match edition.origin == store.id() {
                true => carry_over(card, edition, &mut outcomes, &mut skipped),
                false => mention(card, edition, &outcomes, &mut skipped),
            }
        }
        Ok(Contested { outcomes, skipped, floor })
    }
}

/// What an earlier edition knows besides: trials and skips of variants that did not race now. Code that is not there
/// any more is forgotten; a variant that is not in the catalog may come back.
fn carry_over<D: Device>(card: &dyn Card<D>, edition: &Edition, outcomes: &mut Outcomes, skipped: &mut Vec<Skipped>) {
    let standing = |id: &str, source: &SourceHash| card.find(id).is_none_or(|v| v.source() == *source);
    for old in edition.trials.iter().filter(|t| standing(&t.candidate.variant, &t.candidate.source)) {
        let before = outcomes.trials.iter().position(|t| t.candidate == old.candidate);
        // Whose turn did not come this time is as far as it was.
        if before.is_none_or(|at| outcomes.trials[at].is_unseen()) {
            let mut trial = old.clone();
            trial.place(&outcomes.behind);
            before.map(|at| outcomes.trials.remove(at));
            outcomes.trials.push(trial);
        }
    }
    // What the budget had no time for was counted anew.
    let counted = |s: &&Skipped| edition.verdict.grade.is_provisional() && s.reason == SPENT;
    for old in edition.skipped.iter().filter(|s| standing(&s.variant, &s.source) && !counted(s)) {
        if !skipped.iter().any(|s| s.variant == old.variant && s.reason == old.reason) {
            skipped.push(old.clone());
        }
    }
}

/// What an edition from elsewhere knows besides: its trials were none of this machine's. Who did not race now counts as
/// skipped, so that it is no newcomer the next time.
fn mention<D: Device>(card: &dyn Card<D>, edition: &Edition, outcomes: &Outcomes, skipped: &mut Vec<Skipped>) {
    let current = |id: &str, source: &SourceHash| card.find(id).is_some_and(|v| v.source() == *source);
    let met = |c: &Candidate| outcomes.trials.iter().any(|t| t.candidate == *c);
    for Candidate { variant, source, .. } in edition.trials.iter().map(|t| &t.candidate).filter(|c| !met(c)) {
        let known = skipped.iter_mut().find(|s| s.variant == *variant && s.reason == ELSEWHERE);
        match known {
            Some(known) => known.configs += 1,
            None if current(variant, source) => skipped.push(Skipped {
                variant: variant.clone(),
                source: source.clone(),
                configs: 1,
                reason: ELSEWHERE.into(),
            }),
            None => {}
        }
    }
    for old in edition.skipped.iter().filter(|s| current(&s.variant, &s.source)) {
        if !skipped.iter().any(|s| s.variant == old.variant && s.reason == old.reason) {
            skipped.push(old.clone());
        }
    }
}

/// A stored candidate with the code there is now.
pub(super) fn renewed<D: Device>(card: &dyn Card<D>, candidate: Candidate) -> Option<Candidate> {
    let source = card.find(&candidate.variant)?.source();
    Some(Candidate { source, ..candidate })
}

/// What a contest gave, with all that was skipped and the floor it was judged against in seconds.
struct Contested {
    outcomes: Outcomes,
    skipped: Vec<Skipped>,
    floor: Option<f64>,
}

impl Contested {
    /// Takes over what became of those in an earlier contest who were put away then and did not race again.
    fn take_over(&mut self, earlier: Vec<Trial>) {
        for trial in earlier.into_iter().filter(|t| !t.is_right()) {
            let Candidate { variant, .. } = &trial.candidate;
            let away = self.skipped.iter_mut().find(|s| s.variant == *variant && s.reason.starts_with(PUT_AWAY));
            if let Some(away) = away.filter(|_| !self.outcomes.trials.iter().any(|t| t.candidate == trial.candidate)) {
                away.configs -= 1;
                self.outcomes.trials.push(trial);
            }
        }
        self.skipped.retain(|s| s.configs > 0);
    }
}

impl Outcomes {
    /// Whether a right candidate was rejected as faster than physics.
    fn beat_physics(&self) -> bool {
        self.trials.iter().any(|t| matches!(t.outcome, Outcome::Rejected(Rejection::Impossible { .. })))
    }

    /// Whether a candidate took part and was found wrong.
    fn lost(&self, candidate: &Candidate) -> bool {
        let wrong = |t: &Trial| !t.is_right() && !matches!(t.outcome, Outcome::Rejected(Rejection::TimedOut { .. }));
        self.trials.iter().any(|t| t.candidate == *candidate && wrong(t))
    }
}
