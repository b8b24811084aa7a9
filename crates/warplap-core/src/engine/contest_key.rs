//! One contest of a key: what is to race comes in, with the winner it has and what is known from before; trials, skips
//! and a verdict go out.

use crate::candidate::{Candidate, Outcome, Trial};
use crate::candidates::compile_ahead::CompileAhead;
use crate::candidates::prune::{Pruned, prune};
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
use crate::model::erased::{ErasedProblem, ListedVariant};
use crate::model::roofline::FLOOR_FELL;
use crate::prove::cost_probe::{CAREFUL, CostProbe};
use crate::prove::gate::{Gate, HOPELESS_BY_ROOFLINE};
use crate::prove::proof_cache::ProofCache;
use crate::prove::quarantine::{PUT_AWAY, Quarantine};
use crate::record::{Skipped, TuningRun};
use crate::rejection::Rejection;
use crate::search::{self, Arm, Brief, GoingOn, Search};
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

/// Who fits a problem, who stands aside and why, and the gate that proves them.
struct Listing<'p, D: Device> {
    variants: Vec<ListedVariant<'p, D>>,
    aside: Vec<Skipped>,
    gate: Gate<'p, D>,
}

/// What races.
struct Field {
    /// The configs that the search may ask for.
    arms: Vec<Arm>,
    /// The same, counted.
    entered: Vec<Entered>,
    /// Who ran before and may still win.
    again: Vec<Candidate>,
    /// What does not race, and why.
    left_out: Vec<Skipped>,
}

impl Field {
    fn candidates(&self) -> usize {
        self.entered.iter().map(|e| usize::try_from(e.configs).unwrap_or(usize::MAX)).sum()
    }
}

impl Contested {
    /// Whether somebody was faster than the ceilings allow that gave this floor.
    fn beat_ceilings(&self, floor: Option<f64>) -> bool {
        let fell = self.outcomes.floor.zip(floor).is_some_and(|(now, before)| now < before);
        fell || self.has_impossible()
    }

    /// Whether somebody did not race, or not to the end, for what ceilings said.
    fn lost_some_to_ceilings(&self) -> bool {
        self.has_impossible() || self.skipped.iter().any(|s| s.reason == HOPELESS_BY_ROOFLINE)
    }

    fn has_impossible(&self) -> bool {
        self.outcomes.trials.iter().any(|t| matches!(t.outcome, Outcome::Rejected(Rejection::Impossible { .. })))
    }

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
        erased: &dyn ErasedProblem<D>,
        observer: &dyn Observer,
        known: KnownBefore<'_>,
        (timing, running): (&Timing, &Running<'_>),
    ) -> Result<Contested, Error> {
        let floor = self.floor(erased);
        let first = self.contest_above(floor, erased, observer, known, (timing, running))?;
        let (Some(before), true) = (floor, first.beat_ceilings(floor) && !self.settings.stop.said()) else {
            return Ok(first);
        };
        if first.outcomes.verdict.is_ok() && running.left() < CEILINGS_SHARE * self.settings.budget.seconds {
            return Ok(first);
        }
        self.device.measure_again(&self.store);
        if first.outcomes.verdict.is_ok() && !first.lost_some_to_ceilings() {
            return Ok(first);
        }
        // What was seen of somebody right counts as a ceiling.
        let floors = self.floor(erased).into_iter().chain(first.outcomes.floor);
        match floors.min_by(f64::total_cmp) {
            Some(now) if now < before * FLOOR_FELL => {
                let mut second = self.contest_above(Some(now), erased, observer, known, (timing, running))?;
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
    pub(crate) fn floor(&self, erased: &dyn ErasedProblem<D>) -> Option<f64> {
        let cold = self.settings.policy.cache == CacheState::Cold;
        self.device.ceilings().and_then(|c| erased.least(&c, cold))
    }

    /// The same by the device's data sheet.
    pub(crate) fn least(&self, erased: &dyn ErasedProblem<D>) -> Option<f64> {
        let cold = self.settings.policy.cache == CacheState::Cold;
        self.device.data_sheet().and_then(|c| erased.least(&c, cold))
    }

    /// Whether there is time for what cannot be left out.
    pub(crate) fn affords(
        &self,
        running: &Running<'_>,
        erased: &dyn ErasedProblem<D>,
        needed: f64,
    ) -> Result<(), Error> {
        if needed == 0.0 || running.affords(needed) {
            return Ok(());
        }
        Err(Error::NoTime { problem: erased.text(), needed, budget: self.settings.budget.seconds })
    }

    /// One race of a key: who fits is listed, what is illegal pruned, a search made of the rest, and the contest asks it for
    /// candidates, which are built, proved, timed and judged.
    fn contest_above(
        &self,
        floor: Option<f64>,
        erased: &dyn ErasedProblem<D>,
        observer: &dyn Observer,
        known: KnownBefore<'_>,
        (timing, running): (&Timing, &Running<'_>),
    ) -> Result<Contested, Error> {
        let probe = CostProbe::new(erased, &*self.device, self.settings.seed);
        self.affords(running, erased, probe.as_ref().map_or(0.0, CostProbe::opening))?;
        let proofs = ProofCache::of(&self.store, self.device.fingerprint(), &self.key(erased));
        let Listing { variants, aside, gate } = self.list(erased, &proofs, timing)?;
        self.affords_first(&variants, probe.as_ref(), erased, running)?;
        let pruned = timing.of("prune", || prune(&variants, &self.device));
        let field = self.field(pruned, aside, known, erased);
        observer.event(&Event::Started { problem: &erased.text(), candidates: field.candidates() });
        let Field { arms, entered, again, left_out } = field;
        let mut search = self.search(arms, again, floor, known, erased)?;
        let quarantine = Quarantine::of(&self.store, self.device.fingerprint(), erased.op());
        let gate = gate.remembering(quarantine, proofs).within(running, probe);
        let ahead = CompileAhead::new(erased, &*self.device).until(running);
        let own = known.earlier.filter(|e| e.origin == self.store.id());
        let outcomes = Contest::new(&gate, &ahead, &*self.device, &self.settings, running, observer)
            .with_floors(floor, self.least(erased))
            .with_incumbent(known.incumbent.cloned())
            .with_ledger(own.map(Ledger::of).unwrap_or_default())
            .with_reference(Some(self.reference(erased)))
            .screening(matches!(known.part, Some(Part::Share(_))))
            .run(&mut *search, &entered)?;
        timing.merge(gate.timing.take());
        Ok(self.with_previous(outcomes, left_out, known.earlier, erased))
    }

    /// Who fits, and a gate with its inputs: asking who fits may open a library, inputs are drawn meanwhile.
    fn list<'p>(
        &'p self,
        erased: &'p dyn ErasedProblem<D>,
        proofs: &ProofCache<'_>,
        timing: &Timing,
    ) -> Result<Listing<'p, D>, Error> {
        if proofs.is_empty() {
            erased.call_worker(&self.device);
        }
        let (listing, gate) = std::thread::scope(|scope| {
            let listing = scope.spawn(|| {
                let timing = Timing::default();
                (timing.of("list", || erased.list(&self.device)), timing.take())
            });
            let gate = timing.of("draw", || Gate::open(erased, &*self.device, &self.settings));
            (listing.join(), gate)
        });
        let unlisted = || Error::Device(format!("{}: who fits could not be asked", erased.text()));
        let ((variants, aside), listing) = listing.map_err(|_| unlisted())?;
        timing.merge(listing);
        Ok(Listing { variants, aside, gate: gate? })
    }

    /// Whether there is time for the first choice: it is proved, timed, and proved again.
    fn affords_first(
        &self,
        variants: &[ListedVariant<'_, D>],
        probe: Option<&CostProbe<'_, D>>,
        erased: &dyn ErasedProblem<D>,
        running: &Running<'_>,
    ) -> Result<(), Error> {
        let first = variants.first().and_then(|l| Some((l.runner, l.runner.space(&self.device).default_config()?)));
        let (Some(probe), Some((runner, config))) = (probe, first) else { return Ok(()) };
        let first = Candidate { variant: runner.id().into(), config, source: runner.source() };
        let least = probe.likely(&first, CAREFUL).map_or(0.0, |l| 2.0 * l.proof + LAUNCHES * l.launch);
        self.affords(running, erased, probe.opening() + least)
    }

    /// What of the pruned space races: a part of it, or what an earlier tuning has not met and who may still win it.
    fn field(
        &self,
        mut pruned: Pruned,
        aside: Vec<Skipped>,
        KnownBefore { earlier, part, .. }: KnownBefore<'_>,
        erased: &dyn ErasedProblem<D>,
    ) -> Field {
        let mut left_out: Vec<Skipped> = aside.into_iter().chain(std::mem::take(&mut pruned.skipped)).collect();
        if let Some(part) = part {
            pruned.arms = part.of_arms(pruned.arms);
            // What nobody could race is told once, by the first share.
            left_out.retain(|_| part.is_first());
        }
        let open = earlier.filter(|e| e.verdict.grade.is_provisional());
        let mut again: Vec<Candidate> = open.map(may_win).unwrap_or_default();
        again.retain(|c| is_current(erased, c) && self.usable(c, erased));
        if let Some(edition) = earlier.filter(|_| !open.is_some_and(was_cut)) {
            let new = self.newcomers(edition, erased);
            pruned.arms.retain(|arm| new.contains(&arm.variant));
            pruned.arms = pruned.arms.into_iter().map(|arm| unmet(arm, edition)).collect();
        }
        if self.settings.yardsticks {
            baseline::lift(&mut pruned.arms, |id| erased.is_baseline(id));
        }
        // What was tried and does not race again is not asked for.
        let tried = |arm: &Arm| {
            let trials = open.iter().flat_map(|e| &e.trials).filter(|t| !t.is_unseen());
            let own = trials.filter(|t| t.candidate.variant == arm.variant && t.candidate.source == arm.source);
            own.filter(|t| !again.contains(&t.candidate)).count() as u64
        };
        let entered = pruned.arms.iter().map(|arm| Entered::of(arm, tried(arm))).collect();
        Field { arms: pruned.arms, entered, again, left_out }
    }

    /// The search over what races, which knows what was fastest elsewhere; one that was cut short is gone on with.
    fn search(
        &self,
        arms: Vec<Arm>,
        again: Vec<Candidate>,
        floor: Option<f64>,
        KnownBefore { earlier, part, .. }: KnownBefore<'_>,
        erased: &dyn ErasedProblem<D>,
    ) -> Result<Box<dyn Search>, Error> {
        let name = part.map_or(self.settings.search.as_str(), |part| part.search(&self.settings.search));
        // A floor says how far a time is from the best there can be, and nothing of other objectives.
        let floor_us = floor.map(|f| f * 1e6).filter(|_| self.settings.objective.is_time());
        let elsewhere = self.elsewhere(erased);
        let priors = elsewhere.iter().take(search::DONORS).map(|(candidate, _)| candidate.clone()).collect();
        let seed = part.map_or(self.settings.seed, |part| part.seed(self.settings.seed));
        let brief = Brief { seed, floor_us, defaults: true, priors, elsewhere };
        let search = search::named(name, arms, &brief).ok_or_else(|| {
            Error::Unknown(format!("there is no search '{name}': expected one of {}", search::names().join(", ")))
        })?;
        Ok(match earlier.filter(|e| e.verdict.grade.is_provisional()) {
            Some(edition) => Box::new(GoingOn::new(again, &edition.trials, search)),
            None => search,
        })
    }

    /// What a contest gave, with what an earlier tuning of the key knows besides.
    fn with_previous(
        &self,
        mut outcomes: Outcomes,
        mut skipped: Vec<Skipped>,
        earlier: Option<&TuningRun>,
        erased: &dyn ErasedProblem<D>,
    ) -> Contested {
        skipped.append(&mut outcomes.skipped);
        if let Some(edition) = earlier {
            match edition.origin == self.store.id() {
                true => carry_over(erased, edition, &mut outcomes, &mut skipped),
                false => mention(erased, edition, &outcomes, &mut skipped),
            }
        }
        Contested { outcomes, skipped }
    }
}

impl Outcomes {
    /// Whether a candidate took part and was found wrong.
    pub(crate) fn lost(&self, candidate: &Candidate) -> bool {
        let wrong = |t: &Trial| !t.is_right() && !matches!(t.outcome, Outcome::Rejected(Rejection::TimedOut { .. }));
        self.trials.iter().any(|t| t.candidate == *candidate && wrong(t))
    }
}
