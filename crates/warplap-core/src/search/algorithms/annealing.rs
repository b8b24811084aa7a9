//! Simulated annealing: a walker that takes worse steps too, ever more seldom.

use crate::search::ground::Spot;
use crate::search::walk::{Seen, SpotState, WalkRule};

const SAMPLE: usize = 10;
/// The relative loss that is taken once in e times at first, and how it shrinks with each trial.
const HEAT: f64 = 0.5;
const COOLING: f64 = 0.98;
/// Below this heat the walker starts again from the best.
const COLD: f64 = 0.003;

/// Simulated annealing over relative times.
pub(crate) struct Annealing {
    here: Option<Spot>,
    contest: f64,
}

impl Annealing {
    pub(crate) fn new() -> Self {
        Annealing { here: None, contest: HEAT }
    }
}

impl WalkRule for Annealing {
    fn next(&mut self, seen: &mut Seen) -> Option<Spot> {
        if seen.asked() < SAMPLE || seen.right.is_empty() {
            return seen.random();
        }
        let here = *self.here.get_or_insert(seen.right[0].1);
        let near = seen.new_neighbours(here).pop();
        if near.is_none() {
            // Everything around is known: on to a random spot.
            self.here = Some(seen.right[seen.rng.usize(..seen.right.len())].1);
        }
        near
    }

    fn learn(&mut self, spot: Spot, time: Option<f64>, seen: &mut Seen) {
        let (Some(here), Some(time)) = (self.here, time) else { return };
        let Some(SpotState::Time(level)) = seen.state_of(here) else { return };
        let loss = (time / level).ln();
        if loss < 0.0 || seen.rng.f64() < (-loss / self.contest).exp() {
            self.here = Some(spot);
        }
        self.contest *= COOLING;
        if self.contest < COLD {
            (self.contest, self.here) = (HEAT, seen.right.first().map(|r| r.1));
        }
    }
}
