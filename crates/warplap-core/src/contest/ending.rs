//! The end of a contest: the verdict is settled while there is time, its winner is proved once more, and everyone gets
//! its gap to it.

use std::collections::HashMap;

use super::{Contest, FRONT, Outcomes};
use crate::candidate::{Candidate, Outcome};
use crate::contest::verdict::{Doubt, Verdict, weigh};
use crate::device::Device;
use crate::error::Error;
use crate::measure::{Behind, RacePlan};
use crate::rejection::Rejection;
use crate::search::Search;

/// How often those are called back who left for the sake of a leader that failed; then it is the reference's turn.
const RECALLS: u32 = 8;

/// How often those race again who left early and may be as fast as the winner all the same.
const SECOND_LOOKS: u32 = 3;

/// The share of the machine's time that others may take while a verdict still says how sure it is.
const STOLEN: f64 = 0.005;

impl<'g, D: Device> Contest<'g, D> {
    /// Races the front once more, in blocks spread over time, until the verdict carries or the budget ends. Who left an
    /// early heat on few samples and may be ahead of the winner comes back for it.
    pub(super) fn settle(&mut self, search: &mut dyn Search) {
        for turn in 0..SECOND_LOOKS {
            let Some(verdict) = self.verdict.as_ref().filter(|_| !self.running.over()) else { return };
            let wide = verdict.plus_minus() > RacePlan::default().known_within;
            let again = self.doubtful(verdict);
            let first = turn == 0 && (self.front.len() > 1 || wide);
            if !first && again.is_empty() {
                return;
            }
            let mut entrants = Vec::new();
            again.into_iter().for_each(|candidate| self.enter(candidate, &mut entrants, search));
            self.race(entrants, search, true);
        }
    }

    /// Those out of the race whose chances to be ahead of the winner add up to too much, the likeliest first.
    fn doubtful(&self, verdict: &Verdict) -> Vec<Candidate> {
        let (delta, ln_eps) = (self.settings.delta, verdict.eps.ln_1p());
        let out = self.trials.iter().filter(|t| t.is_right()).map(|t| &t.candidate);
        let out = out.filter(|c| !self.front.iter().any(|e| e.contender.candidate == **c));
        let chance = |c: &Candidate| Some(self.ledger.gap(c, &verdict.winner)?.chance_ahead(ln_eps));
        let mut chances: Vec<(f64, &Candidate)> = out.filter_map(|c| Some((chance(c)?, c))).collect();
        if chances.iter().map(|(chance, _)| chance).sum::<f64>() <= delta / 2.0 {
            return Vec::new();
        }
        chances.sort_by(|a, b| b.0.total_cmp(&a.0));
        let worth = chances.into_iter().filter(|(chance, _)| *chance > delta / 100.0);
        worth.take(FRONT).map(|(_, candidate)| candidate.clone()).collect()
    }

    /// Proves the winner once more after timing; one that fails now makes place for the next of the front, and when
    /// nobody of it is left for those who had left the race for its sake.
    pub(super) fn finish(mut self, search: &mut dyn Search) -> Result<Outcomes, Error> {
        loop {
            let Some(verdict) = self.verdict.take() else {
                if self.recall(search) {
                    continue;
                }
                break;
            };
            let Some(at) = self.front.iter().position(|e| e.contender.candidate == verdict.winner) else { break };
            let mut entrant = self.front.remove(at);
            let again = self.gate.timing.of("verify again", || self.gate.prove_again(&mut entrant))?;
            let Err(rejection) = again else { return Ok(self.kept(verdict)) };
            if self.device.is_walled() || self.gate.is_promoted(&verdict.winner) {
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
        let (trials, skipped) = (self.trials, self.skipped);
        Ok(Outcomes { verdict: Err(rejection), trials, skipped, behind: HashMap::new(), floor: self.floor })
    }

    /// The verdict as it is kept: weighed by the gaps of all heats, which every trial carries.
    fn kept(self, mut verdict: Verdict) -> Outcomes {
        (verdict.rounds, verdict.launches) = (self.rounds, self.launches);
        let mut gap_list = self.ledger.gap_by_candidate(&verdict.winner);
        // A candidate that was found wrong is nobody's rival.
        let wrong = |c: &Candidate| self.trials.iter().any(|t| t.candidate == *c && !t.is_right() && !t.is_unseen());
        gap_list.retain(|candidate, _| !wrong(candidate));
        let own = self.trials.iter().find(|t| t.candidate == verdict.winner).and_then(|t| t.measurement());
        let (samples, promised) = (own.map_or(0, |m| m.rounds), verdict.confidence > 0.0);
        let doubt = Doubt { delta: self.settings.delta, scatter: self.device.scatter() };
        weigh(&mut verdict, gap_list.iter().map(|(candidate, gap)| (candidate, *gap)), doubt, samples);
        if !promised || !self.saw_the_machine() {
            verdict.confidence = 0.0;
        }
        let behind: HashMap<Candidate, Behind> = gap_list.into_iter().map(|(c, gap)| (c, gap.behind())).collect();
        let mut trials = self.trials;
        trials.iter_mut().for_each(|trial| trial.place(&behind));
        Outcomes { verdict: Ok(verdict), trials, skipped: self.skipped, behind, floor: self.floor }
    }

    /// Whether its samples are spread over enough of the machine's moods, and others took nothing of it meanwhile.
    fn saw_the_machine(&self) -> bool {
        self.began.is_some_and(|(began, stolen)| {
            let seconds = began.elapsed().as_secs_f64();
            seconds >= self.device.spread_seconds() && self.device.stolen() - stolen <= STOLEN * seconds
        })
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
}
