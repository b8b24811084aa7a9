//! The ledger of a contest: the gaps of every heat come in; how far everyone is behind the winner goes out.
//!
//! Times of different heats are of different moods of the machine and do not compare. Whoever raced in a heat has a gap
//! to its winner, and that one ran in the next: from heat to heat the gaps add up.

use std::collections::HashMap;

use crate::candidate::Candidate;
use crate::measure::{Gap, Race};
use crate::record::TuningRun;

/// Everyone's gap to the winner of the last heat it raced in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(HashMap<Candidate, (Candidate, Gap)>);

impl Ledger {
    /// What an edition knows: everyone's gap to its winner.
    pub(crate) fn of(edition: &TuningRun) -> Ledger {
        let winner = &edition.verdict.winner;
        let known = |t: &crate::candidate::Trial| {
            let behind = t.measurement()?.behind.as_deref()?;
            Some((t.candidate.clone(), (winner.clone(), Gap::from(behind))))
        };
        let mut entries: HashMap<_, _> = edition.trials.iter().filter_map(known).collect();
        entries.insert(winner.clone(), (winner.clone(), Gap::NONE));
        Ledger(entries)
    }

    /// Writes down a heat. The winner of the last one, where it did not run in this, is tied to it by what is known.
    pub(crate) fn note(&mut self, race: &Race, candidates: &[Candidate], winner: &Candidate) {
        let Some(first) = candidates.iter().position(|c| c == winner) else { return };
        if let Some((root, gap)) = self.to_root(winner).filter(|(root, _)| !candidates.contains(root)) {
            self.0.insert(root, (winner.clone(), Gap { ln: -gap.ln, ..gap }));
        }
        for (lane, candidate) in candidates.iter().enumerate() {
            if let Some(gap) = race.gap(lane, first) {
                let gap = if lane == first { Gap::NONE } else { gap };
                self.0.insert(candidate.clone(), (winner.clone(), gap));
            }
        }
    }

    /// How far a candidate is behind another, where there is a chain between them.
    pub(crate) fn gap(&self, candidate: &Candidate, winner: &Candidate) -> Option<Gap> {
        if candidate == winner {
            return Some(Gap::NONE);
        }
        let ((a, own), (b, other)) = (self.to_root(candidate)?, self.to_root(winner)?);
        (a == b).then(|| own.less(other))
    }

    /// How far everyone is behind the winner.
    pub(crate) fn gap_by_candidate(&self, winner: &Candidate) -> HashMap<Candidate, Gap> {
        self.0.keys().filter_map(|c| Some((c.clone(), self.gap(c, winner)?))).collect()
    }

    /// The end of a candidate's chain, and how far it is behind it.
    fn to_root(&self, candidate: &Candidate) -> Option<(Candidate, Gap)> {
        let (mut at, mut sum) = (candidate, Gap::NONE);
        // A chain is at most as long as there are entries.
        for _ in 0..=self.0.len() {
            let (next, gap) = self.0.get(at)?;
            if next == at {
                break;
            }
            sum = sum.and(*gap);
            at = next;
        }
        Some((at.clone(), sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidate::SourceHash;
    use crate::measure::{Ended, Lane, Measurement, Placing};
    use crate::space::Config;

    fn who(name: &str) -> Candidate {
        Candidate { variant: name.into(), config: Config::new(), source: SourceHash(String::new()) }
    }

    /// A heat with lanes this far behind the first.
    fn race_of(at: &[f64]) -> Race {
        Race {
            contestants: at.iter().map(|_| Lane::Measured(Measurement::default())).collect(),
            leader: Some(0),
            ties: Vec::new(),
            runner_up: None,
            margin: None,
            places: at.iter().map(|at| Some(Placing { variance: 5e-5, ..Placing::sure(*at) })).collect(),
            rounds: 4,
            launches: 4,
            ended: Ended::ByRule,
            sigma: 0.01,
            floor: None,
        }
    }

    #[test]
    fn who_lost_to_a_loser_is_behind_the_winner_by_both_gaps() {
        let (a, b, c, d) = (who("a"), who("b"), who("c"), who("d"));
        let mut ledger = Ledger::default();
        ledger.note(&race_of(&[0.0, 0.1]), &[a.clone(), b.clone()], &a);
        ledger.note(&race_of(&[0.0, 0.05]), &[c.clone(), a.clone()], &c);
        ledger.note(&race_of(&[0.0, 0.02]), &[d.clone(), c.clone()], &d);
        let behind = |who: &Candidate| ledger.gap(who, &d).unwrap();
        assert!((behind(&b).ln - 0.17).abs() < 1e-12 && (behind(&a).ln - 0.07).abs() < 1e-12);
        assert!(behind(&b).error > behind(&a).error, "every link adds its doubt");
        assert_eq!(behind(&d), Gap::NONE);
        assert_eq!(ledger.gap_by_candidate(&d).len(), 4);
        assert!(ledger.gap(&who("nobody"), &d).is_none());
    }

    #[test]
    fn a_winner_that_fell_out_still_links_those_who_raced_with_it() {
        let (a, b, c) = (who("a"), who("b"), who("c"));
        let mut ledger = Ledger::default();
        ledger.note(&race_of(&[0.0, 0.1, 0.3]), &[a.clone(), b.clone(), c.clone()], &a);
        // It was found wrong; the second races alone.
        ledger.note(&race_of(&[0.0]), std::slice::from_ref(&b), &b);
        assert!((ledger.gap(&c, &b).unwrap().ln - 0.2).abs() < 1e-12);
        assert!((ledger.gap(&a, &b).unwrap().ln + 0.1).abs() < 1e-12);
    }
}
