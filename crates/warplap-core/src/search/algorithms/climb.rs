//! Greedy local search with restarts: a random sample, then climbs from the best spots to better neighbours.
//!
//! A climb takes the first better neighbour it finds (one axis changed, to whatever value). On a peak it starts again:
//! in turns from the best of a fresh sample, which leads out of valleys that hold everything around the best, and from
//! the best spot that no climb has been at.

use std::collections::HashSet;

use crate::search::ground::Spot;
use crate::search::walk::{Seen, SpotState, WalkRule};

/// Random candidates before the first climb and in a fresh sample: with fewer, climbs start in poor valleys.
const SAMPLE: usize = 20;

/// Greedy local search with restarts.
#[derive(Default)]
pub(crate) struct Climb {
    here: Option<Spot>,
    /// Neighbours of `here` that were not asked yet, the next one last.
    open: Vec<Spot>,
    climbed: HashSet<Spot>,
    /// The fresh sample that is being drawn.
    drawn: Vec<Spot>,
    /// Whether the last restart was from a fresh sample.
    fresh: bool,
}

impl Climb {
    /// Goes on from a spot.
    fn move_to(&mut self, spot: Spot, seen: &mut Seen) {
        self.here = Some(spot);
        self.climbed.insert(spot);
        self.open = seen.new_neighbours(spot);
    }

    /// Goes on from the best spot that no climb has been at, of those `among`.
    fn move_to_best(&mut self, among: impl Fn(&Spot) -> bool, seen: &mut Seen) {
        let best = seen.right.iter().map(|r| r.1).find(|s| among(s) && !self.climbed.contains(s));
        if let Some(spot) = best {
            self.move_to(spot, seen);
        }
    }

    /// Starts again, once a peak is reached. Gives a spot to ask where that takes a sample.
    fn restart(&mut self, seen: &mut Seen) -> Option<Spot> {
        if self.drawn.len() >= SAMPLE {
            let drawn = std::mem::take(&mut self.drawn);
            self.move_to_best(|s| drawn.contains(s), seen);
            return None;
        }
        if self.drawn.is_empty() {
            self.fresh = !self.fresh;
        }
        if self.fresh {
            let spot = seen.random();
            self.drawn.extend(spot);
            return spot;
        }
        self.move_to_best(|_| true, seen);
        None
    }
}

impl WalkRule for Climb {
    fn next(&mut self, seen: &mut Seen) -> Option<Spot> {
        if self.here.is_none() {
            if seen.asked() < SAMPLE || seen.right.is_empty() {
                return seen.random();
            }
            let best = seen.right[0].1;
            self.move_to(best, seen);
        }
        // A few restarts may be spent already.
        for _ in 0..8 {
            while let Some(spot) = self.open.pop() {
                if seen.is_new(spot) {
                    return Some(spot);
                }
            }
            if let Some(spot) = self.restart(seen) {
                return Some(spot);
            }
        }
        None
    }

    fn learn(&mut self, spot: Spot, time: Option<f64>, seen: &mut Seen) {
        let Some(here) = self.here else { return };
        let level = match seen.state_of(here) {
            Some(SpotState::Time(level)) => level,
            _ => f64::INFINITY,
        };
        if time.is_some_and(|t| t < level) {
            self.move_to(spot, seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::candidate::SourceHash;
    use crate::candidates::variant::Priority;
    use crate::search::tests::measured;
    use crate::search::{Arm, Brief, named};
    use crate::space::{Axis, Config, Space};

    /// A wide valley whose bottom is at 2, 2, 2, and a better one behind it that no single step leads to.
    fn time(config: &Config) -> f64 {
        let at: Vec<i64> = ["x", "y", "z"].iter().filter_map(|axis| config.int(axis)).collect();
        let away = |from: i64| at.iter().map(|v| (v - from).abs() as f64).sum::<f64>();
        if at.iter().all(|v| *v >= 6) { 1.0 + 0.1 * away(8) } else { 5.0 + away(2) }
    }

    #[test]
    fn a_climb_that_stands_in_a_wide_valley_gets_out_of_it() {
        let mut result = 0;
        for seed in 0..20 {
            let axes = ["x", "y", "z"].iter().fold(Space::single(), |s, axis| s.axis(Axis::ints(axis, 0..10)));
            let arm = Arm::new("a", SourceHash::of(&["a"]), Priority::High, axes);
            // It stands at the bottom of the wrong valley at once, and has seen nothing else.
            let bottom = |d: i64| arm.candidate(Config::new().with("x", 2).with("y", 2).with("z", d));
            let priors: Vec<_> = (0..6).map(bottom).collect();
            let mut search = named("climb", vec![arm], &Brief { seed, priors, ..Brief::default() }).unwrap();
            for _ in 0..150 {
                let candidate = search.ask(1).remove(0);
                let time = time(&candidate.config);
                result += usize::from(time == 1.0);
                search.tell(&measured(candidate, time));
            }
        }
        assert!(result >= 18, "in {result} of 20 runs");
    }
}
