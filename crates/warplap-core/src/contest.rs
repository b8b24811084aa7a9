//! The contest of one key: the search proposes, the gate proves, the race decides, until the search or the budget ends.
//!
//! A search comes in; every trial and a verdict go out. It reads no store. However small the budget, somebody right is
//! measured: the incumbent or the first choice, and where they fail the reference.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::ahead::Ahead;
use crate::candidate::{Candidate, Outcome, SourceHash, Trial};
use crate::device::Device;
use crate::error::Error;
use crate::gate::{Entrant, Gate, TooLong};
use crate::lanes::Lanes;
use crate::measure::{RacePlan, race};
use crate::progress::{Event, Observer};
use crate::record::Skipped;
use crate::rejection::Rejection;
use crate::search::{Arm, Search};
use crate::settings::{Running, Settings};
use crate::verdict::{self, Contender, Grade, Verdict};

/// Candidates raced together: enough that common noise cancels, few enough that a leader is known early.
const BATCH: usize = 24;

/// Who is carried from race to race: the leader and up to this many others within [`NEAR`] of it.
const FRONT: usize = 4;
const NEAR: f64 = 1.03;

/// How long a compiler is waited for before it is asked again whether there is time left.
const WAIT: Duration = Duration::from_millis(50);

/// Who is not compiled this long after the last one was keeps the others no longer from racing, and comes after them.
const LATE: Duration = Duration::from_millis(400);

/// How often those are called back who left for the sake of a leader that failed; then it is the reference's turn.
const RECALLS: u32 = 8;

/// What a contest gives.
pub(crate) struct Outcomes {
    /// Who won; or, where nobody was right, what became of the last one tried.
    pub(crate) verdict: Result<Verdict, Rejection>,
    pub(crate) trials: Vec<Trial>,
    pub(crate) skipped: Vec<Skipped>,
}

/// One variant's part of the contest: how many configs the search may ask for.
pub(crate) struct Entered {
    variant: String,
    source: SourceHash,
    configs: u64,
}

impl From<&Arm> for Entered {
    fn from(arm: &Arm) -> Self {
        Entered { variant: arm.variant.clone(), source: arm.source.clone(), configs: arm.len() }
    }
}

/// A contest while it runs.
pub(crate) struct Contest<'g, D: Device> {
    gate: &'g Gate<'g, D>,
    /// Compiles those who wait for their turn.
    ahead: &'g Ahead<'g, D>,
    device: &'g D,
    settings: &'g Settings,
    running: &'g Running<'g>,
    observer: &'g dyn Observer,
    /// Seconds no honest launch can be below.
    floor: Option<f64>,
    /// The stored winner, which keeps its place in a tie.
    incumbent: Option<Candidate>,
    /// Who is tried when everyone else failed.
    reference: Option<Candidate>,
    front: Vec<Entrant<'g, D>>,
    /// Asked for and still compiled while others raced.
    late: Vec<Candidate>,
    verdict: Option<Verdict>,
    trials: Vec<Trial>,
    skipped: Vec<Skipped>,
    tried: u64,
    /// Seconds that the last proof took.
    proof: f64,
    rounds: u32,
    launches: u64,
    recalls: u32,
}

impl<'g, D: Device> Contest<'g, D> {
    pub(crate) fn new(
        gate: &'g Gate<'g, D>,
        ahead: &'g Ahead<'g, D>,
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
            incumbent: None,
            reference: None,
            front: Vec::new(),
            late: Vec::new(),
            verdict: None,
            trials: Vec::new(),
            skipped: Vec::new(),
            tried: 0,
            proof: 0.0,
            rounds: 0,
            launches: 0,
            recalls: 0,
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

    /// Who is tried when everyone else failed.
    pub(crate) fn with_reference(mut self, reference: Option<Candidate>) -> Self {
        self.reference = reference;
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
            let batch: Vec<Candidate> = first.drain(..).chain(asked).collect();
            self.ahead.expect(search.likely(BATCH.min(self.room())));
            let entrants = self.prove(batch, search);
            if self.device.builders() > 0 && !self.spent() {
                early = search.ask_early(BATCH.min(self.room()));
                self.ahead.want(&early);
            }
            if !entrants.is_empty() {
                self.race(entrants, search, false);
            }
        }
        let unconfirmed = self.front.len() > 1 && self.running.over();
        if self.front.len() > 1 && !unconfirmed {
            self.race(Vec::new(), search, true);
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

    /// Sends candidates through the gate, in the order in which they are compiled.
    fn prove(&mut self, batch: Vec<Candidate>, search: &mut dyn Search) -> Vec<Entrant<'g, D>> {
        let mut entrants = Vec::new();
        let mut pending = Vec::new();
        for candidate in batch {
            let incumbent = self.incumbent.as_ref() == Some(&candidate);
            let hopeless = || self.gate.hopeless(&candidate).filter(|_| !incumbent);
            let passed_over = || self.gate.passed_over(&candidate).filter(|_| !incumbent);
            match self.gate.quarantined(&candidate).or_else(passed_over).or_else(hopeless) {
                Some(reason) => self.skip(&candidate.variant, &candidate.source, 1, &reason),
                None => pending.push(candidate),
            }
        }
        self.ahead.want(&pending);
        let mut last = Instant::now();
        let half = self.running.left() / 2.0;
        while !pending.is_empty() {
            if !entrants.is_empty() && self.running.left() < half {
                // Some of the time is for the race; who was not proved by now comes after it.
                self.late = pending;
                break;
            }
            if self.spent() || (self.tried > 0 && !self.running.affords(self.proof)) {
                pending.drain(..).for_each(|c| self.skip(&c.variant, &c.source, 1, SPENT));
                break;
            }
            let wait = || self.gate.timing.of("compile", || self.ahead.ready(&mut pending, WAIT));
            let ready = self.running.beside(wait);
            let Some((candidate, compiled)) = ready else {
                if !entrants.is_empty() && last.elapsed() > LATE {
                    self.late = pending;
                    break;
                }
                continue;
            };
            let incumbent = self.incumbent.as_ref() == Some(&candidate);
            if let Some(reason) = self.gate.hopeless(&candidate).filter(|_| !incumbent) {
                self.skip(&candidate.variant, &candidate.source, 1, &reason);
                continue;
            }
            match self.gate.takes_too_long(&candidate).filter(|_| !incumbent) {
                Some(TooLong::NoTime) => {
                    self.skip(&candidate.variant, &candidate.source, 1, SPENT);
                    continue;
                }
                Some(TooLong::FarBehind) => {
                    self.skip(&candidate.variant, &candidate.source, 1, "it was far behind on a smaller problem");
                    continue;
                }
                None => {}
            }
            match compiled {
                Ok(()) => self.enter(candidate, &mut entrants, search),
                Err(rejection) => {
                    self.tried += 1;
                    self.tell(Trial { candidate, outcome: Outcome::Rejected(rejection) }, search);
                }
            }
            last = Instant::now();
        }
        entrants
    }

    /// Sends one candidate through the gate.
    fn enter(&mut self, candidate: Candidate, entrants: &mut Vec<Entrant<'g, D>>, search: &mut dyn Search) {
        self.tried += 1;
        let incumbent = self.incumbent.as_ref() == Some(&candidate);
        let started = Instant::now();
        let proved = self.running.beside(|| self.gate.prove(&candidate, incumbent));
        self.proof = started.elapsed().as_secs_f64() - self.gate.opening();
        match proved {
            Ok(entrant) => {
                if self.verdict.is_none() {
                    // In the first race everyone is sampled, whatever the time.
                    self.running.owe(entrant.sample);
                }
                self.observer.event(&Event::Proved(&candidate));
                entrants.push(entrant);
            }
            Err(rejection) => self.tell(Trial { candidate, outcome: Outcome::Rejected(rejection) }, search),
        }
    }

    /// Races newcomers against the front, and keeps the new front.
    fn race(&mut self, newcomers: Vec<Entrant<'g, D>>, search: &mut dyn Search, confirm: bool) {
        let earlier = self.verdict.take();
        let known = self.front.len();
        let mut lanes: Vec<Entrant<'g, D>> = self.front.drain(..).chain(newcomers).collect();
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
        // Before time may run out somebody must have been measured, and in the first race everyone: or it is chance who
        // wins.
        let taken = Cell::new(0);
        let needed = if earlier.is_some() { 0 } else { contenders.len() as u64 };
        let mut stop = || self.running.over() && taken.get() >= needed;
        let mut watch = Lanes::new(&mut lanes, &taken, self.device).racing_for(&self.settings.objective);
        let stage = if confirm { "confirm" } else { "race" };
        let outcome = self.gate.timing.of(stage, || race(contenders.len(), &mut watch, &plan, &mut stop));
        if needed > 0 {
            self.running.owe(-lanes.iter().map(|e| e.sample).sum::<f64>());
        }
        self.rounds += outcome.rounds;
        self.launches += outcome.launches;
        let candidates: Vec<Candidate> = contenders.iter().map(|c| c.candidate.clone()).collect();
        let mut trials = verdict::trials(&outcome, &candidates);
        let unseen = |t: &Trial| matches!(t.outcome, Outcome::Rejected(Rejection::TimedOut { .. }));
        if let Some(earlier) = earlier.filter(|_| trials[..known].iter().any(unseen)) {
            // Stopped before it had seen those who led: what was known of them stands.
            trials.drain(..known).for_each(drop);
            lanes.truncate(known);
            self.front = lanes;
            self.verdict = Some(Verdict { grade: Grade::Capped, confidence: 0.0, ..earlier });
            trials.into_iter().for_each(|trial| self.tell(trial, search));
            return;
        }
        // Those of the front have trials of earlier races: the newer ones take their place.
        self.trials.retain(|t| !candidates.contains(&t.candidate));
        let measured = |c: &Candidate| trials.iter().find(|t| t.candidate == *c).and_then(finished);
        let contended = self.gate.timing.of("readings", || self.device.contended());
        self.verdict = verdict::decide(&outcome, &contenders, &plan, contended);
        if let Some(verdict) = &self.verdict {
            self.gate.seen(verdict.median_us * 1e-6);
            self.observer.event(&Event::Leader(&verdict.winner, verdict.median_us));
            let limit = measured(&verdict.winner).unwrap_or(f64::INFINITY) * NEAR;
            lanes.retain(|e| measured(&e.contender.candidate).is_some_and(|cost| cost <= limit));
            let is_winner = |e: &Entrant<'g, D>| e.contender.candidate == verdict.winner;
            lanes.sort_by(|a, b| {
                let rank = |e| (!is_winner(e), measured(&e.contender.candidate).unwrap_or(f64::INFINITY));
                rank(a).partial_cmp(&rank(b)).unwrap_or(std::cmp::Ordering::Equal)
            });
            lanes.truncate(FRONT);
            self.front = lanes;
        }
        trials.into_iter().for_each(|trial| self.tell(trial, search));
    }

    /// Proves the winner once more after timing; one that fails now makes place for the next of the front, and when
    /// nobody of it is left for those who had left the race for its sake.
    fn finish(mut self, search: &mut dyn Search) -> Result<Outcomes, Error> {
        loop {
            let Some(mut verdict) = self.verdict.take() else {
                if self.recall(search) {
                    continue;
                }
                break;
            };
            let Some(at) = self.front.iter().position(|e| e.contender.candidate == verdict.winner) else { break };
            let entrant = self.front.remove(at);
            let again = self.gate.timing.of("verify again", || self.gate.prove_again(&*entrant.kernel))?;
            let Err(rejection) = again else {
                (verdict.rounds, verdict.launches) = (self.rounds, self.launches);
                self.name_runner_up(&mut verdict);
                return Ok(Outcomes { verdict: Ok(verdict), trials: self.trials, skipped: self.skipped });
            };
            if self.gate.is_promoted(&verdict.winner) {
                self.gate.put_away(&verdict.winner, &rejection);
            }
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
        Ok(Outcomes { verdict: Err(rejection), trials: self.trials, skipped: self.skipped })
    }

    /// The second best of all races: the last one has seen the front alone.
    fn name_runner_up(&self, verdict: &mut Verdict) {
        let others = self.trials.iter().filter(|t| t.candidate != verdict.winner);
        let second = others.filter_map(|t| Some((t.cost()?, t))).min_by(|a, b| a.0.total_cmp(&b.0));
        let own = self.trials.iter().find(|t| t.candidate == verdict.winner).and_then(Trial::cost);
        // Times of different races are of different moods of the machine: who seems faster by those alone was beaten.
        if let (Some((cost, trial)), Some(own)) = (second, own)
            && cost >= own
            && verdict.runner_up.as_ref() != Some(&trial.candidate)
        {
            verdict.runner_up = Some(trial.candidate.clone());
            verdict.margin = Some(cost / own - 1.0);
        }
    }

    /// Nobody leads. Those who were right and left for the sake of one that failed since race again, and when there are
    /// none the reference is tried; `false` when that was done too. Each time somebody is found wrong, so it ends.
    fn recall(&mut self, search: &mut dyn Search) -> bool {
        let mut right: Vec<(f64, Candidate)> =
            self.trials.iter().filter_map(|t| Some((t.cost()?, t.candidate.clone()))).collect();
        right.sort_by(|a, b| a.0.total_cmp(&b.0));
        right.truncate(if self.recalls < RECALLS { FRONT } else { 0 });
        let mut again: Vec<Candidate> = right.into_iter().map(|(_, candidate)| candidate).collect();
        if again.is_empty() {
            let was_wrong = |c: &Candidate| self.trials.iter().any(|t| t.candidate == *c && !t.is_right());
            again.extend(self.reference.take().filter(|c| !was_wrong(c)));
        }
        if again.is_empty() {
            return false;
        }
        self.recalls += 1;
        self.gate.forget();
        self.trials.retain(|t| !again.contains(&t.candidate));
        let mut entrants = Vec::new();
        again.into_iter().for_each(|candidate| self.enter(candidate, &mut entrants, search));
        self.front.clear();
        if !entrants.is_empty() {
            self.race(entrants, search, true);
        }
        true
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

const SPENT: &str = "the budget was spent";

/// The cost of a trial that stayed to the end.
fn finished(trial: &Trial) -> Option<f64> {
    match &trial.outcome {
        Outcome::Measured(m) => Some(m.raced_for()),
        Outcome::Rejected(_) => None,
    }
}
