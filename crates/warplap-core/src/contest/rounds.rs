//! One heat of a contest: newcomers come in and race against the front; a verdict, their trials and a new front go out.

use std::cell::Cell;
use std::time::Instant;

use super::{Contest, FRONT};
use crate::candidate::{Candidate, Outcome, Trial};
use crate::contest::verdict::{self, Contender, Grade, Verdict};
use crate::device::Device;
use crate::engine::progress::Event;
use crate::measure::contestants::Contestants;
use crate::measure::{Race, RacePlan, race};
use crate::prove::gate::Entrant;
use crate::search::Search;

/// Who is this near to the winner is carried to the next race, and who could still be as fast.
const NEAR: f64 = 0.03;

impl<'g, D: Device> Contest<'g, D> {
    /// Races newcomers against the front, and keeps the new front.
    pub(super) fn race(&mut self, newcomers: Vec<Entrant<'g, D>>, search: &mut dyn Search, confirm: bool) {
        self.began.get_or_insert_with(|| (Instant::now(), self.device.stolen()));
        let earlier = self.verdict.take();
        let known = self.front.len();
        let mut contestants: Vec<Entrant<'g, D>> = self.front.drain(..).chain(newcomers).collect();
        self.observer.event(&Event::Racing(contestants.len()));
        let contenders: Vec<Contender> = contestants.iter().map(|e| e.contender.clone()).collect();
        let plan = RacePlan {
            eps: self.settings.eps,
            delta: self.settings.delta,
            confirm,
            floor: self.floor,
            least: self.least,
            believed: (0..contenders.len()).filter(|&l| self.gate.is_library(&contenders[l].candidate)).collect(),
            incumbent: contenders.iter().position(|c| c.incumbent),
            seed: self.settings.seed.wrapping_add(self.tried),
            ..RacePlan::default()
        };
        // Before time may run out somebody must have been measured, and in the first race everyone: or it is chance who
        // wins.
        let taken = Cell::new(0);
        let needed = if earlier.is_some() { 0 } else { contenders.len() as u64 };
        let mut stop = || self.running.over() && taken.get() >= needed;
        let mut watch = Contestants::new(&mut contestants, &taken, self.device).racing_for(&self.settings.objective);
        let stage = if confirm { "confirm" } else { "race" };
        let outcome = self.gate.timing.of(stage, || race(contenders.len(), &mut watch, &plan, &mut stop));
        if needed > 0 {
            self.running.owe(-contestants.iter().map(|e| e.sample).sum::<f64>());
        }
        if outcome.floor.zip(self.floor).is_some_and(|(now, before)| now < before) {
            self.gate.doubt_ceilings();
        }
        self.floor = outcome.floor;
        self.rounds += outcome.rounds;
        self.launches += outcome.launches;
        let candidates: Vec<Candidate> = contenders.iter().map(|c| c.candidate.clone()).collect();
        let mut trials = verdict::trials(&outcome, &candidates);
        trials.iter_mut().zip(&contestants).for_each(|(trial, entrant)| trial.takes(entrant.kernel.resources()));
        if let Some(earlier) = earlier.filter(|_| trials[..known].iter().any(Trial::is_unseen)) {
            // Stopped before it had seen those who led: what was known of them stands.
            trials.drain(..known).for_each(drop);
            contestants.truncate(known);
            self.front = contestants;
            self.verdict = Some(Verdict { grade: Grade::Capped, confidence: 0.0, ..earlier });
        } else {
            let contended = self.gate.timing.of("readings", || self.device.contended());
            self.verdict = verdict::decide(&outcome, &contenders, &plan, contended);
            if let Some(verdict) = &self.verdict {
                self.gate.seen(verdict.median_us * 1e-6);
                self.observer.event(&Event::Leader(&verdict.winner, verdict.median_us));
                self.ledger.note(&outcome, &candidates, &verdict.winner);
                self.front = front(contestants, &outcome, &verdict.winner);
            }
        }
        for trial in trials {
            if let Outcome::Rejected(rejection) = &trial.outcome
                && !trial.is_unseen()
            {
                let _ = self.gate.judged::<()>(&trial.candidate, Err(rejection.clone()));
            }
            // Who has a trial of an earlier race gets the newer one, where there is one.
            let before = self.trials.iter().position(|t| t.candidate == trial.candidate);
            match before {
                Some(at) if trial.is_unseen() => search.tell(&self.trials[at]),
                Some(at) => {
                    self.trials.remove(at);
                    self.tell(trial, search);
                }
                None => self.tell(trial, search),
            }
        }
    }
}

/// Who runs in the next race too: the winner, then the nearest of those that stayed.
fn front<'g, D: Device>(contestants: Vec<Entrant<'g, D>>, race: &Race, winner: &Candidate) -> Vec<Entrant<'g, D>> {
    let Some(first) = contestants.iter().position(|e| e.contender.candidate == *winner) else { return Vec::new() };
    let mut near: Vec<(f64, Entrant<'g, D>)> = Vec::new();
    for (lane, entrant) in contestants.into_iter().enumerate() {
        let stayed = matches!(race.contestants[lane], crate::measure::Lane::Measured(_));
        let Some(gap) = race.gap(lane, first).filter(|_| stayed || lane == first) else { continue };
        if gap.ln <= NEAR.ln_1p() || gap.behind().is_tie() {
            near.push((if lane == first { f64::NEG_INFINITY } else { gap.ln }, entrant));
        }
    }
    near.sort_by(|a, b| a.0.total_cmp(&b.0));
    near.into_iter().take(FRONT).map(|(_, entrant)| entrant).collect()
}
