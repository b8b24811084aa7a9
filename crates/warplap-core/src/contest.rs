//! The contest of one key: the search proposes, the gate proves, the race decides, until the search or the budget ends.
//!
//! A search comes in; every trial and a verdict go out. It reads no store.

use crate::candidate::{Candidate, Outcome, Trial};
use crate::device::Device;
use crate::error::Error;
use crate::gate::{Entrant, Gate, Lanes};
use crate::measure::{RacePlan, race};
use crate::op::Op;
use crate::progress::{Event, Observer};
use crate::record::Skipped;
use crate::rejection::Rejection;
use crate::search::Search;
use crate::settings::{Running, Settings};
use crate::verdict::{self, Contender, Verdict};

/// Candidates raced together: enough that common noise cancels, few enough that a leader is known early.
const BATCH: usize = 24;

/// Who is carried from race to race: the leader and up to this many others within [`NEAR`] of it.
const FRONT: usize = 4;
const NEAR: f64 = 1.03;

/// What a contest gives.
pub(crate) struct Outcomes {
    pub(crate) verdict: Verdict,
    pub(crate) trials: Vec<Trial>,
    pub(crate) skipped: Vec<Skipped>,
}

/// A contest while it runs.
pub(crate) struct Contest<'g, O: Op, D: Device> {
    gate: &'g Gate<'g, O, D>,
    device: &'g D,
    settings: &'g Settings,
    running: &'g Running<'g>,
    observer: &'g dyn Observer,
    /// Seconds no honest launch can be below.
    floor: Option<f64>,
    /// The stored winner, which keeps its place in a tie.
    incumbent: Option<Candidate>,
    front: Vec<Entrant<'g, O, D>>,
    verdict: Option<Verdict>,
    trials: Vec<Trial>,
    skipped: Vec<Skipped>,
    tried: u64,
    rounds: u32,
    launches: u64,
}

impl<'g, O: Op, D: Device> Contest<'g, O, D> {
    pub(crate) fn new(
        gate: &'g Gate<'g, O, D>,
        device: &'g D,
        settings: &'g Settings,
        running: &'g Running<'g>,
        observer: &'g dyn Observer,
    ) -> Self {
        Contest {
            gate,
            device,
            settings,
            running,
            observer,
            floor: None,
            incumbent: None,
            front: Vec::new(),
            verdict: None,
            trials: Vec::new(),
            skipped: Vec::new(),
            tried: 0,
            rounds: 0,
            launches: 0,
        }
    }

    /// The floor below which a time is impossible, in seconds.
    pub(crate) fn with_floor(mut self, floor: Option<f64>) -> Self {
        self.floor = floor;
        self
    }

    /// The stored winner that defends its place.
    pub(crate) fn with_incumbent(mut self, incumbent: Option<Candidate>) -> Self {
        self.incumbent = incumbent;
        self
    }

    /// Runs the contest to its end.
    pub(crate) fn run(mut self, search: &mut dyn Search, problem: &O::Problem) -> Result<Outcomes, Error> {
        // The incumbent is not asked for by the search: it defends its place in the first race.
        let mut first: Vec<Candidate> = self.incumbent.iter().cloned().collect();
        while self.tried < self.settings.budget.trials && !self.good_enough() {
            let asked = search.ask(BATCH).into_iter().filter(|c| self.incumbent.as_ref() != Some(c));
            let batch: Vec<Candidate> = first.drain(..).chain(asked).collect();
            if batch.is_empty() {
                break;
            }
            let entrants = self.prove(batch, search);
            if !entrants.is_empty() {
                self.race(entrants, search, false);
            }
        }
        if self.front.len() > 1 && !self.running.over() {
            self.race(Vec::new(), search, true);
        }
        // What the search still had when time ran out is skipped by name: it must not be taken for new later.
        if self.running.over() {
            loop {
                let left = search.ask(BATCH);
                if left.is_empty() {
                    break;
                }
                left.iter().for_each(|c| self.skip(c, SPENT));
            }
        }
        self.skipped.extend(search.skipped());
        self.finish(problem)
    }

    /// Sends candidates through the gate.
    fn prove(&mut self, batch: Vec<Candidate>, search: &mut dyn Search) -> Vec<Entrant<'g, O, D>> {
        let mut entrants = Vec::new();
        for candidate in batch {
            let incumbent = self.incumbent.as_ref() == Some(&candidate);
            // Somebody must have been proved right before time may run out.
            if self.running.over() && !(self.front.is_empty() && entrants.is_empty()) {
                self.skip(&candidate, SPENT);
                continue;
            }
            if let Some(reason) = self.gate.hopeless(&candidate).filter(|_| !incumbent) {
                self.skip(&candidate, &reason);
                continue;
            }
            self.tried += 1;
            match self.gate.prove(&candidate, incumbent) {
                Ok(entrant) => {
                    self.observer.event(&Event::Proved(&candidate));
                    entrants.push(entrant);
                }
                Err(rejection) => self.tell(Trial { candidate, outcome: Outcome::Rejected(rejection) }, search),
            }
        }
        entrants
    }

    /// Races newcomers against the front, and keeps the new front.
    fn race(&mut self, newcomers: Vec<Entrant<'g, O, D>>, search: &mut dyn Search, confirm: bool) {
        let mut lanes: Vec<Entrant<'g, O, D>> = self.front.drain(..).chain(newcomers).collect();
        self.observer.event(&Event::Racing(lanes.len()));
        let contenders: Vec<Contender> = lanes.iter().map(|e| e.contender.clone()).collect();
        let plan = RacePlan {
            eps: self.settings.eps,
            delta: self.settings.delta,
            confirm,
            floor: self.floor,
            incumbent: contenders.iter().position(|c| c.incumbent),
            seed: self.settings.seed.wrapping_add(self.tried),
            ..RacePlan::default()
        };
        let outcome = race(lanes.len(), &mut Lanes(&mut lanes), &plan, &mut || self.running.over());
        self.rounds += outcome.rounds;
        self.launches += outcome.launches;
        let candidates: Vec<Candidate> = contenders.iter().map(|c| c.candidate.clone()).collect();
        // Those of the front have trials of earlier races: the newer ones take their place.
        self.trials.retain(|t| !candidates.contains(&t.candidate));
        let trials = verdict::trials(&outcome, &candidates);
        let measured = |c: &Candidate| trials.iter().find(|t| t.candidate == *c).and_then(finished);
        self.verdict = verdict::decide(&outcome, &contenders, &plan, self.device.contended());
        if let Some(verdict) = &self.verdict {
            self.gate.seen(verdict.median_us * 1e-6);
            self.observer.event(&Event::Leader(&verdict.winner, verdict.median_us));
            let limit = verdict.median_us * NEAR;
            lanes.retain(|e| measured(&e.contender.candidate).is_some_and(|us| us <= limit));
            let is_winner = |e: &Entrant<'g, O, D>| e.contender.candidate == verdict.winner;
            lanes.sort_by(|a, b| {
                let rank = |e| (!is_winner(e), measured(&e.contender.candidate).unwrap_or(f64::INFINITY));
                rank(a).partial_cmp(&rank(b)).unwrap_or(std::cmp::Ordering::Equal)
            });
            lanes.truncate(FRONT);
            self.front = lanes;
        }
        trials.into_iter().for_each(|trial| self.tell(trial, search));
    }

    /// Proves the winner once more after timing; one that fails now makes place for the next of the front.
    fn finish(mut self, problem: &O::Problem) -> Result<Outcomes, Error> {
        while let Some(mut verdict) = self.verdict.take() {
            let Some(at) = self.front.iter().position(|e| e.contender.candidate == verdict.winner) else { break };
            let entrant = self.front.remove(at);
            let Err(rejection) = self.gate.prove_again(&*entrant.kernel)? else {
                (verdict.rounds, verdict.launches) = (self.rounds, self.launches);
                return Ok(Outcomes { verdict, trials: self.trials, skipped: self.skipped });
            };
            if let Some(trial) = self.trials.iter_mut().find(|t| t.candidate == verdict.winner) {
                trial.outcome = Outcome::Rejected(rejection);
            }
            self.verdict = self.front.first().and_then(|next| {
                let candidate = &next.contender.candidate;
                let trial = self.trials.iter().find(|t| t.candidate == *candidate)?;
                let Outcome::Measured(m) = &trial.outcome else { return None };
                let (median_us, ci_us, winner) = (m.median_us, m.ci_us, candidate.clone());
                Some(Verdict { winner, median_us, ci_us, runner_up: None, margin: None, ties: Vec::new(), ..verdict })
            });
        }
        let said = self.trials.iter().rev().find_map(|t| match &t.outcome {
            Outcome::Rejected(rejection) => Some(rejection.clone()),
            Outcome::Measured(_) => None,
        });
        let rejection = said.unwrap_or(Rejection::TimedOut { seconds: self.running.seconds() });
        Err(Error::NothingRight { problem: O::text(problem), rejection })
    }

    fn good_enough(&self) -> bool {
        let (Some(verdict), Some(floor)) = (&self.verdict, self.floor) else { return false };
        floor / (verdict.median_us * 1e-6) >= self.settings.budget.good_enough
    }

    fn tell(&mut self, trial: Trial, search: &mut dyn Search) {
        self.observer.event(&Event::Tried(&trial));
        search.tell(&trial);
        self.trials.push(trial);
    }

    /// Counts a candidate as skipped, one entry per variant and reason.
    fn skip(&mut self, candidate: &Candidate, reason: &str) {
        match self.skipped.iter_mut().find(|s| s.variant == candidate.variant && s.reason == reason) {
            Some(entry) => entry.configs += 1,
            None => self.skipped.push(Skipped {
                variant: candidate.variant.clone(),
                source: candidate.source.clone(),
                configs: 1,
                reason: reason.into(),
            }),
        }
    }
}

const SPENT: &str = "the budget was spent";

/// The median of a trial that stayed to the end.
fn finished(trial: &Trial) -> Option<f64> {
    match &trial.outcome {
        Outcome::Measured(m) => Some(m.median_us),
        Outcome::Rejected(_) => None,
    }
}
