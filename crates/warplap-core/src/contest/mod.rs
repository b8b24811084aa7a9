//! The contest of one key: the search proposes, the gate proves, the race decides, until the search or the budget ends.
//!
//! A search comes in; every trial and a verdict go out. It reads no store. However small the budget, somebody right is
//! measured: the incumbent or the first choice, and where they fail the reference.

use std::collections::HashMap;
use std::time::Instant;

use crate::candidate::{Candidate, SourceHash, Trial};
use crate::candidates::compile_ahead::CompileAhead;
use crate::contest::ledger::Ledger;
use crate::contest::verdict::{Grade, Verdict};
use crate::device::Device;
use crate::engine::progress::{Event, Observer};
use crate::engine::settings::{Running, Settings};
use crate::error::Error;
use crate::measure::Behind;
use crate::prove::gate::{Entrant, Gate};
use crate::record::Skipped;
use crate::rejection::Rejection;
use crate::search::{Arm, Search};

pub(crate) mod baseline;
mod ending;
mod entering;
pub(crate) mod ledger;
mod rounds;
pub mod verdict;

/// Candidates raced together: enough that common noise cancels, few enough that a leader is known early.
const BATCH: usize = 24;

/// Who is carried from race to race: the leader and up to so many others that are near it.
const FRONT: usize = 4;

/// Why a candidate was not tried that the budget had no time for.
pub(crate) const SPENT: &str = "the budget was spent";

/// What a contest gives.
pub(crate) struct Outcomes {
    /// Who won; or, where nobody was right, what became of the last one tried.
    pub(crate) verdict: Result<Verdict, Rejection>,
    pub(crate) trials: Vec<Trial>,
    pub(crate) skipped: Vec<Skipped>,
    /// How far everyone that was ever timed for the key is behind the winner.
    pub(crate) behind: HashMap<Candidate, Behind>,
    /// The floor it was judged against, in seconds: lower than it was where a library was faster.
    pub(crate) floor: Option<f64>,
}

/// One variant's part of the contest: how many configs the search may ask for.
pub(crate) struct Entered {
    variant: String,
    source: SourceHash,
    pub(crate) configs: u64,
}

impl Entered {
    /// An arm of which so many configs were tried before and are not asked for again.
    pub(crate) fn of(arm: &Arm, tried: u64) -> Self {
        let configs = arm.len().saturating_sub(tried);
        Entered { variant: arm.variant.clone(), source: arm.source.clone(), configs }
    }
}

/// A contest while it runs.
pub(crate) struct Contest<'g, D: Device> {
    gate: &'g Gate<'g, D>,
    /// Compiles those who wait for their turn.
    ahead: &'g CompileAhead<'g, D>,
    device: &'g D,
    settings: &'g Settings,
    running: &'g Running<'g>,
    observer: &'g dyn Observer,
    /// Seconds no honest launch can be below by measured ceilings, and by the data sheet.
    floor: Option<f64>,
    least: Option<f64>,
    /// The stored winner, which keeps its place in a tie.
    incumbent: Option<Candidate>,
    /// Who is tried when everyone else failed.
    reference: Option<Candidate>,
    /// Whether it only ranks candidates for a contest elsewhere.
    screening: bool,
    front: Vec<Entrant<'g, D>>,
    /// Asked for and still compiled while others raced.
    late: Vec<Candidate>,
    verdict: Option<Verdict>,
    /// Who is behind whom, over all heats.
    ledger: Ledger,
    trials: Vec<Trial>,
    skipped: Vec<Skipped>,
    tried: u64,
    /// Seconds that the last proof of one of ours took.
    proof: f64,
    rounds: u32,
    launches: u64,
    recalls: u32,
    /// When the first heat began, and how many seconds had been stolen by then.
    began: Option<(Instant, f64)>,
}

impl<'g, D: Device> Contest<'g, D> {
    pub(crate) fn new(
        gate: &'g Gate<'g, D>,
        ahead: &'g CompileAhead<'g, D>,
        device: &'g D,
        settings: &'g Settings,
        running: &'g Running<'g>,
        observer: &'g dyn Observer,
    ) -> Self {
        Contest {
            gate,
            ahead,
            device,
            settings,
            running,
            observer,
            floor: None,
            least: None,
            incumbent: None,
            reference: None,
            screening: false,
            front: Vec::new(),
            late: Vec::new(),
            verdict: None,
            ledger: Ledger::default(),
            trials: Vec::new(),
            skipped: Vec::new(),
            tried: 0,
            proof: 0.0,
            rounds: 0,
            launches: 0,
            recalls: 0,
            began: None,
        }
    }

    /// The floors in seconds: by measured ceilings, and the one by the data sheet below which a time is impossible.
    pub(crate) fn with_floors(mut self, floor: Option<f64>, least: Option<f64>) -> Self {
        (self.floor, self.least) = (floor, least);
        self
    }

    /// The stored winner that defends its place.
    pub(crate) fn with_incumbent(mut self, incumbent: Option<Candidate>) -> Self {
        self.incumbent = incumbent;
        self
    }

    /// What earlier tunings of the key know of who is behind whom.
    pub(crate) fn with_ledger(mut self, ledger: Ledger) -> Self {
        self.ledger = ledger;
        self
    }

    /// Who is tried when everyone else failed.
    pub(crate) fn with_reference(mut self, reference: Option<Candidate>) -> Self {
        self.reference = reference;
        self
    }

    /// It only ranks: who is near the front meets again elsewhere, and is not confirmed here.
    pub(crate) fn screening(mut self, only: bool) -> Self {
        self.screening = only;
        self
    }

    /// Runs the contest to its end. `entered` is what the search was made of.
    pub(crate) fn run(self, search: &mut dyn Search, entered: &[Entered]) -> Result<Outcomes, Error> {
        let (ahead, gate, running) = (self.ahead, self.gate, self.running);
        std::thread::scope(|scope| {
            let _compiling = ahead.start(scope);
            gate.draw_ahead();
            let outcomes = self.run_to_end(search, entered);
            gate.timing.of("record", || gate.keep(!running.over()));
            outcomes
        })
    }

    fn run_to_end(mut self, search: &mut dyn Search, entered: &[Entered]) -> Result<Outcomes, Error> {
        // The incumbent is not asked for by the search: it defends its place in the first race.
        let mut first: Vec<Candidate> = self.incumbent.iter().cloned().collect();
        // Asked for while others are raced, so that they are compiled by the time it is their turn.
        let mut early: Vec<Candidate> = Vec::new();
        while !self.spent() && !self.good_enough() {
            let room = BATCH.min(self.room()).saturating_sub(self.late.len());
            let asked = match early.is_empty() {
                true if room == 0 => Vec::new(),
                true => search.ask(room),
                false => std::mem::take(&mut early),
            };
            first.append(&mut self.late);
            if asked.is_empty() && first.is_empty() {
                break;
            }
            let asked = asked.into_iter().filter(|c| self.incumbent.as_ref() != Some(c));
            let mut batch: Vec<Candidate> = first.drain(..).chain(asked).collect();
            // However short the time is, a library is among those who had a turn.
            batch.sort_by_key(|c| !self.gate.is_library(c));
            let entrants = self.prove(batch, search);
            if self.device.builders() > 0 && !self.spent() {
                early = search.ask_early(BATCH.min(self.room()));
                self.ahead.want(&early);
            }
            if !entrants.is_empty() {
                self.race(entrants, search, false);
            }
        }
        let unconfirmed = !self.screening && self.front.len() > 1 && self.running.over();
        if !self.screening {
            self.settle(search);
        }
        self.skipped.extend(search.skipped());
        let cut = self.skip_rest(entered) || unconfirmed;
        if let Some(verdict) = self.verdict.as_mut().filter(|_| cut && self.running.over()) {
            (verdict.grade, verdict.confidence) = (Grade::Capped, 0.0);
        }
        self.finish(search)
    }

    /// How many more candidates may be tried. The very first one is free.
    fn room(&self) -> usize {
        let left = self.settings.budget.trials.max(1).saturating_sub(self.tried);
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    /// Whether no more candidates may be tried.
    fn spent(&self) -> bool {
        self.tried > 0 && (self.room() == 0 || self.running.over())
    }

    /// What the search never came to is skipped by name: it must not be taken for new later. Whether there was any.
    fn skip_rest(&mut self, entered: &[Entered]) -> bool {
        let reason = match () {
            () if self.spent() => SPENT,
            () if self.good_enough() => "what was found is good enough",
            () => "the search ended before it",
        };
        let mut any = false;
        for arm in entered {
            let tried = self.trials.iter().filter(|t| t.candidate.variant == arm.variant).count() as u64;
            let known = self.skipped.iter().filter(|s| s.variant == arm.variant);
            let rest = arm.configs.saturating_sub(tried + known.map(|s| s.configs).sum::<u64>());
            if rest > 0 {
                any = true;
                self.skip(&arm.variant, &arm.source, rest, reason);
            }
        }
        any || self.skipped.iter().any(|s| s.reason == SPENT)
    }

    fn good_enough(&self) -> bool {
        let (Some(verdict), Some(floor)) = (&self.verdict, self.floor) else { return false };
        self.settings.objective.is_time() && floor / (verdict.median_us * 1e-6) >= self.settings.budget.good_enough
    }

    fn tell(&mut self, trial: Trial, search: &mut dyn Search) {
        self.observer.event(&Event::Tried(&trial));
        search.tell(&trial);
        self.trials.push(trial);
    }

    /// Counts configs as skipped, one entry per variant and reason.
    fn skip(&mut self, variant: &str, source: &SourceHash, configs: u64, reason: &str) {
        match self.skipped.iter_mut().find(|s| s.variant == variant && s.reason == reason) {
            Some(entry) => entry.configs += configs,
            None => {
                let (variant, source, reason) = (variant.into(), source.clone(), reason.into());
                self.skipped.push(Skipped { variant, source, configs, reason });
            }
        }
    }
}
