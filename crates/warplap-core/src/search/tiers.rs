//! Priority tiers: lower priorities race only when the tier above was not good enough.

use crate::candidate::{Candidate, Trial};
use crate::candidates::variant::Priority;
use crate::record::Skipped;
use crate::search::{Arm, Search};

/// A tier is good enough when its best candidate reaches this share of the roofline.
pub(crate) const GOOD_ENOUGH: f64 = 0.6;

/// Makes the search used inside one tier.
pub(crate) type Inner = Box<dyn Fn(Vec<Arm>) -> Box<dyn Search> + Send>;

/// Races one priority after the other, best first, and stops after the first tier that was good enough: one that
/// left a right candidate within a stated share of the roofline.
pub(crate) struct Tiers {
    waiting: Vec<(Priority, Vec<Arm>)>,
    current: Option<Box<dyn Search>>,
    inner: Inner,
    floor_us: Option<f64>,
    best_us: f64,
    done: bool,
}

impl Tiers {
    /// Groups the arms by priority. Without a floor nothing can be near the roofline, and any right candidate is good
    /// enough.
    pub(crate) fn new(arms: Vec<Arm>, floor_us: Option<f64>, inner: Inner) -> Self {
        let mut waiting: Vec<(Priority, Vec<Arm>)> = Vec::new();
        for priority in [Priority::Low, Priority::Medium, Priority::High] {
            let tier: Vec<Arm> = arms.iter().filter(|a| a.priority == priority).cloned().collect();
            if !tier.is_empty() {
                waiting.push((priority, tier));
            }
        }
        Tiers { waiting, current: None, inner, floor_us, best_us: f64::INFINITY, done: false }
    }

    /// The share of the roofline the best candidate reached.
    fn reached(&self) -> f64 {
        match self.floor_us {
            _ if self.best_us.is_infinite() => 0.0,
            Some(floor) => floor / self.best_us,
            None => 1.0,
        }
    }
}

impl Search for Tiers {
    fn ask(&mut self, at_most: usize) -> Vec<Candidate> {
        loop {
            if let Some(search) = &mut self.current {
                let batch = search.ask(at_most);
                if !batch.is_empty() {
                    return batch;
                }
                self.current = None;
            }
            if self.done || self.reached() >= GOOD_ENOUGH {
                self.done = true;
                return Vec::new();
            }
            match self.waiting.pop() {
                Some((_, tier)) => self.current = Some((self.inner)(tier)),
                None => return Vec::new(),
            }
        }
    }

    /// Whether the next tier races is known only when this one is told.
    fn ask_early(&mut self, at_most: usize) -> Vec<Candidate> {
        self.current.as_mut().map_or_else(Vec::new, |search| search.ask_early(at_most))
    }

    fn tell(&mut self, trial: &Trial) {
        // What somebody else asked for before the first tier was opened says nothing of a tier.
        let Some(search) = &mut self.current else { return };
        search.tell(trial);
        if let Some(cost) = trial.cost() {
            self.best_us = self.best_us.min(cost);
        }
    }

    fn likely(&self, at_most: usize) -> Vec<Candidate> {
        self.current.as_ref().map_or_else(Vec::new, |search| search.likely(at_most))
    }

    fn skipped(&self) -> Vec<Skipped> {
        let share = (100.0 * self.reached()).round();
        let reason = format!("a higher tier reached {share} % of the roofline");
        self.waiting
            .iter()
            .rev()
            .flat_map(|(priority, tier)| tier.iter().map(move |arm| (priority, arm)))
            .map(|(priority, arm)| Skipped {
                variant: arm.variant.clone(),
                source: arm.source.clone(),
                configs: arm.len(),
                reason: format!("{} priority, and {reason}", priority.word()),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::algorithms::exhaustive::Exhaustive;
    use crate::search::tests::{arm, failed, measured};

    fn tiers(floor: Option<f64>) -> Tiers {
        let arms = vec![arm("low", Priority::Low, 1), arm("high", Priority::High, 1), arm("mid", Priority::Medium, 1)];
        Tiers::new(arms, floor, Box::new(|arms| Box::new(Exhaustive::new(arms))))
    }

    #[test]
    fn a_good_high_tier_ends_the_search_and_says_what_it_skipped() {
        let mut search = tiers(Some(10.0));
        let first = search.ask(9).remove(0);
        assert_eq!(first.variant, "high");
        search.tell(&measured(first, 12.0));
        assert!(search.ask(9).is_empty());
        let skipped = search.skipped();
        assert_eq!(skipped.iter().map(|s| s.variant.as_str()).collect::<Vec<_>>(), ["mid", "low"]);
        assert!(skipped[0].reason.contains("83 %"), "{}", skipped[0].reason);
    }

    #[test]
    fn a_slow_or_failed_tier_opens_the_next() {
        let mut search = tiers(Some(10.0));
        let high = search.ask(9).remove(0);
        assert!(search.ask_early(9).is_empty(), "the next tier hangs on this one");
        search.tell(&failed(high));
        let mid = search.ask(9).remove(0);
        assert_eq!(mid.variant, "mid");
        search.tell(&measured(mid, 40.0));
        let low = search.ask(9).remove(0);
        assert_eq!(low.variant, "low");
        search.tell(&measured(low, 39.0));
        assert!(search.ask(9).is_empty() && search.skipped().is_empty());
    }

    #[test]
    fn without_a_floor_any_right_candidate_is_enough() {
        let mut search = tiers(None);
        let high = search.ask(9).remove(0);
        search.tell(&measured(high, 1e6));
        assert!(search.ask(9).is_empty());
    }
}
