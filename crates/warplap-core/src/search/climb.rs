//! Greedy iterated local search: a random sample, then climbs from the best spots to better neighbours.
//!
//! A climb takes the first better neighbour it finds (one axis changed, to whatever value). On a peak it starts again
//! from the best spot that no climb has been at, or, every second time, from a jump that changes two or three axes of
//! one of the best.

use std::collections::HashSet;

use super::ground::Spot;
use super::walk::{Rule, Seen, Told};

/// Random candidates before the first climb: with fewer, climbs start in poor valleys.
const SAMPLE: usize = 20;

/// Greedy iterated local search.
#[derive(Default)]
pub(super) struct Climb {
    here: Option<Spot>,
    /// Neighbours of `here` that were not asked yet, the next one last.
    open: Vec<Spot>,
    climbed: HashSet<Spot>,
    restarts: usize,
    /// A jump that was asked and may be climbed from.
    jumped: Option<Spot>,
}

impl Climb {
    /// Goes on from a spot.
    fn move_to(&mut self, spot: Spot, seen: &mut Seen) {
        self.here = Some(spot);
        self.climbed.insert(spot);
        self.open = seen.new_neighbours(spot);
    }

    /// Where to climb next, once a peak is reached.
    fn restart(&mut self, seen: &mut Seen) -> Option<Spot> {
        self.restarts += 1;
        if let Some(spot) = self.jumped.take()
            && matches!(seen.told(spot), Some(Told::Time(_)))
        {
            self.move_to(spot, seen);
            return None;
        }
        if self.restarts.is_multiple_of(2)
            && let Some(spot) = self.jump(seen)
        {
            self.jumped = Some(spot);
            return Some(spot);
        }
        let next = seen.right.iter().map(|r| r.1).find(|s| !self.climbed.contains(s));
        if let Some(spot) = next {
            self.move_to(spot, seen);
        }
        None
    }

    /// A new spot two or three axes away from one of the best.
    fn jump(&mut self, seen: &mut Seen) -> Option<Spot> {
        let from = seen.right.get(seen.rng.usize(..3.min(seen.right.len().max(1))))?.1;
        let place = seen.ground.place(from)?;
        for _ in 0..30 {
            let mut point = place.point.clone();
            for _ in 0..seen.rng.usize(2..=3) {
                let axis = seen.rng.usize(..point.len().max(1));
                let values = seen.ground.axes(place.arm).get(axis)?.values().len() as u16;
                point[axis] = seen.rng.u16(..values);
            }
            if let Some(spot) = seen.ground.spot(place.arm, &point).filter(|s| seen.is_new(*s)) {
                return Some(spot);
            }
        }
        None
    }
}

impl Rule for Climb {
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
        let level = match seen.told(here) {
            Some(Told::Time(level)) => level,
            _ => f64::INFINITY,
        };
        if time.is_some_and(|t| t < level) {
            self.move_to(spot, seen);
        }
    }
}
