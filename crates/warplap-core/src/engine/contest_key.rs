//! One contest of a key: what is to race comes in, with the winner it has and what is known from before; trials, skips
//! and a verdict go out.

use crate::candidates::candidate::{Candidate, Outcome, Trial};
use crate::candidates::compile_ahead::CompileAhead;
use crate::candidates::prune::prune;
use crate::candidates::rejection::Rejection;
use crate::contest::baseline;
use crate::contest::ledger::Ledger;
use crate::contest::{Contest, Entered, Outcomes};
use crate::device::Device;
use crate::engine::known::merge_previous::{carry_over, mention};
use crate::engine::known::new_candidates::unmet;
use crate::engine::known::provisional::{may_win, was_cut};
use crate::engine::progress::{Event, Observer};
use crate::engine::settings::Running;
use crate::engine::tuning_engine::{TuningEngine, is_current};
use crate::error::Error;
use crate::measure::CacheState;
use crate::measure::timing::Timing;
use crate::model::erased::ErasedProblem;
use crate::model::roofline::FLOOR_FELL;
use crate::prove::cost_probe::{CAREFUL, CostProbe};
use crate::prove::gate::Gate;
use crate::prove::proof_cache::ProofCache;
use crate::prove::quarantine::{PUT_AWAY, Quarantine};
use crate::records::record::{Skipped, TuningRun};
use crate::search::{self, Arm, Brief, GoingOn};
use crate::split::Part;

use crate::engine::run::CEILINGS_SHARE;

/// Launches of a candidate that is timed, at least.
const LAUNCHES: f64 = 2.0;

/// What is known before a contest, and what of the space is raced.
#[derive(Clone, Copy, Default)]
pub(crate) struct KnownBefore<'k> {
    /// The winner that defends its place.
    pub(crate) incumbent: Option<&'k Candidate>,
    /// The tuning that is gone on with.
    pub(crate) earlier: Option<&'k TuningRun>,
    /// What of the space is raced; all of it where nothing is said.
    pub(crate) part: Option<&'k Part>,
}

/// What a contest gave, with all that was skipped.
pub(crate) struct Contested {
    pub(crate) outcomes: Outcomes,
    pub(crate) skipped: Vec<Skipped>,
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

impl<D: Device> TuningEngine<D> {
    /// One contest, and a second one where right candidates were faster than ceilings that turn out to be too low.
    pub(crate) fn contest(
        &self,
        card: &dyn ErasedProblem<D>,
        observer: &dyn Observer,
        known: KnownBefore<'_>,
        (timing, running): (&Timing, &Running<'_>),
    ) -> Result<Contested, Error> {
        let floor = self.floor(card);
        let first = self.contest_above(floor, card, observer, known, (timing, running))?;
        let (Some(before), true) = (floor, first.outcomes.beat_physics() && !self.settings.stop.said()) else {
            return Ok(first);
        };
        if first.outcomes.verdict.is_ok() && running.left() < CEILINGS_SHARE * self.settings.budget.seconds {
            return Ok(first);
        }
        self.device.measure_again(&self.store);
        // A library's own time counts as a ceiling.
        let floors = self.floor(card).into_iter().chain(first.outcomes.floor);
        match floors.min_by(f64::total_cmp) {
            Some(now) if now < before * FLOOR_FELL => {
                let mut second = self.contest_above(Some(now), card, observer, known, (timing, running))?;
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
    pub(crate) fn floor(&self, card: &dyn ErasedProblem<D>) -> Option<f64> {
        let cold = self.settings.policy.cache == CacheState::Cold;
        self.device.ceilings().and_then(|c| card.least(&c, cold))
    }

    /// Whether there is time for what cannot be left out.
    pub(crate) fn affords(&self, running: &Running<'_>, card: &dyn ErasedProblem<D>, needed: f64) -> Result<(), Error> {
        if needed == 0.0 || running.affords(needed) {
            return Ok(());
        }
        Err(Error::NoTime { problem: card.text(), needed, budget: self.settings.budget.seconds })
    }

    /// Listing, pruning, search, gate, race, verdict.
    fn contest_above(
        &self,
        floor: Option<f64>,
        card: &dyn ErasedProblem<D>,
        observer: &dyn Observer,
        KnownBefore { incumbent, earlier, part }: KnownBefore<'_>,
        (timing, running): (&Timing, &Running<'_>),
    ) -> Result<Contested, Error> {
        let probe = CostProbe::new(card, &*self.device, self.settings.seed);
        self.affords(running, card, probe.as_ref().map_or(0.0, CostProbe::opening))?;
        let proofs = ProofCache::of(&self.store, self.device.fingerprint(), &self.key(card));
        if proofs.is_empty() {
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
        if let (Some(probe), Some((runner, config))) = (&probe, first) {
            let first = Candidate { variant: runner.id().into(), config, source: runner.source() };
            // It is proved, timed, and proved again.
            let least = probe.likely(&first, CAREFUL).map_or(0.0, |l| 2.0 * l.proof + LAUNCHES * l.launch);
            self.affords(running, card, probe.opening() + least)?;
        }
        let mut pruned = timing.of("prune", || prune(&listed, &self.device));
        let mut left_out: Vec<Skipped> = aside.into_iter().chain(std::mem::take(&mut pruned.skipped)).collect();
        if let Some(part) = part {
            pruned.arms = part.of_arms(pruned.arms);
            // What nobody could race is told once, by the first share.
            left_out.retain(|_| part.is_first());
        }
        let open = earlier.filter(|e| e.verdict.grade.is_provisional());
        let mut again: Vec<Candidate> = open.map(may_win).unwrap_or_default();
        again.retain(|c| is_current(card, c) && self.usable(c, card));
        if let Some(edition) = earlier.filter(|_| !open.is_some_and(was_cut)) {
            let new = self.newcomers(edition, card);
            pruned.arms.retain(|arm| new.contains(&arm.variant));
            pruned.arms = pruned.arms.into_iter().map(|arm| unmet(arm, edition)).collect();
        }
        if self.settings.yardsticks {
            baseline::lift(&mut pruned.arms, |id| card.is_baseline(id));
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

        let name = part.map_or(self.settings.search.as_str(), |part| part.search(&self.settings.search));
        // A floor says how far a time is from the best there can be, and nothing of other objectives.
        let floor_us = floor.map(|f| f * 1e6).filter(|_| self.settings.objective.is_time());
        let elsewhere = self.elsewhere(card);
        let priors = elsewhere.iter().take(search::DONORS).map(|(candidate, _)| candidate.clone()).collect();
        let seed = part.map_or(self.settings.seed, |part| part.seed(self.settings.seed));
        let brief = Brief { seed, floor_us, defaults: true, priors, elsewhere };
        let mut search = search::named(name, pruned.arms, &brief).ok_or_else(|| {
            Error::Unknown(format!("there is no search '{name}': expected one of {}", search::names().join(", ")))
        })?;
        if let Some(edition) = open {
            search = Box::new(GoingOn::new(again, &edition.trials, search));
        }
        let store = &self.store;
        let quarantine = Quarantine::of(store, self.device.fingerprint(), card.op());
        let gate = gate?.remembering(quarantine, proofs).within(running, probe);
        let ahead = CompileAhead::new(card, &*self.device).until(running);
        let mut outcomes = Contest::new(&gate, &ahead, &*self.device, &self.settings, running, observer)
            .with_floor(floor)
            .with_incumbent(incumbent.cloned())
            .with_ledger(earlier.filter(|e| e.origin == store.id()).map(Ledger::of).unwrap_or_default())
            .with_reference(Some(self.reference(card)))
            .screening(matches!(part, Some(Part::Share(_))))
            .run(&mut *search, &entered)?;
        timing.merge(gate.timing.take());
        let mut skipped = left_out;
        skipped.append(&mut outcomes.skipped);
        if let Some(edition) = earlier {
            match edition.origin == store.id() {
                true => carry_over(card, edition, &mut outcomes, &mut skipped),
                false => mention(card, edition, &outcomes, &mut skipped),
            }
        }
        Ok(Contested { outcomes, skipped })
    }
}

impl Outcomes {
    /// Whether a right candidate was rejected as faster than physics.
    fn beat_physics(&self) -> bool {
        self.trials.iter().any(|t| matches!(t.outcome, Outcome::Rejected(Rejection::Impossible { .. })))
    }

    /// Whether a candidate took part and was found wrong.
    pub(crate) fn lost(&self, candidate: &Candidate) -> bool {
        let wrong = |t: &Trial| !t.is_right() && !matches!(t.outcome, Outcome::Rejected(Rejection::TimedOut { .. }));
        self.trials.iter().any(|t| t.candidate == *candidate && wrong(t))
    }
}
