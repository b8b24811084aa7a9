//! Successive halving over the race: many candidates are raced at once, the better half goes on, and each rung looks
//! twice as closely around those that are left.

use crate::search::ground::Spot;
use crate::search::walk::{Seen, SpotState, WalkRule};

/// Candidates of a bracket's first rung.
const WIDE: usize = 32;

/// Successive halving: brackets of rungs of 32 random candidates, then 16 neighbours of the 16 best of those, and so
/// on.
#[derive(Default)]
pub(crate) struct Halving {
    /// The rung that is being asked: who was asked so far, and how many it takes.
    rung: Vec<Spot>,
    wide: usize,
    /// Whose neighbours the rung asks; none in a first rung.
    survivors: Vec<Spot>,
}

impl Halving {
    fn next_rung(&mut self, seen: &Seen) {
        let time = |spot: &Spot| match seen.state_of(*spot) {
            Some(SpotState::Time(t)) => t,
            _ => f64::INFINITY,
        };
        let mut all: Vec<(f64, Spot)> =
            self.rung.drain(..).chain(self.survivors.drain(..)).map(|s| (time(&s), s)).collect();
        all.retain(|s| s.0.is_finite());
        all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        self.wide /= 2;
        if self.wide < 2 || all.is_empty() {
            self.wide = WIDE;
            return;
        }
        self.survivors = all.into_iter().take(self.wide).map(|s| s.1).collect();
    }
}

impl WalkRule for Halving {
    fn next(&mut self, seen: &mut Seen) -> Option<Spot> {
        self.wide = self.wide.max(2);
        if seen.asked() == 0 {
            self.wide = WIDE;
        }
        if self.rung.len() >= self.wide.max(4) * if self.survivors.is_empty() { 1 } else { 2 } {
            self.next_rung(seen);
        }
        let spot = match self.survivors.is_empty() {
            true => seen.random(),
            false => {
                let from = self.survivors[self.rung.len() % self.survivors.len()];
                let near = seen.new_neighbours(from).pop();
                near.or_else(|| seen.random())
            }
        };
        self.rung.extend(spot);
        spot
    }
}
