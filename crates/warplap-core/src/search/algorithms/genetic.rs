//! Genetic search: children of two good parents, with now and then a value of their own.

use crate::search::ground::Spot;
use crate::search::population::{fittest, settle};
use crate::search::walk::{Seen, WalkRule};

/// The population: as many random candidates first.
const SIZE: usize = 20;

/// Genetic search, one child at a time: the population is always the fittest so far.
pub(crate) struct Genetic;

impl WalkRule for Genetic {
    fn next(&mut self, seen: &mut Seen) -> Option<Spot> {
        if seen.asked() < SIZE {
            return seen.random();
        }
        let parents = fittest(seen, SIZE);
        if parents.len() < 2 {
            return None;
        }
        for _ in 0..30 {
            // The better of two drawn: good parents are likelier.
            let mut pick = || seen.rng.usize(..parents.len()).min(seen.rng.usize(..parents.len()));
            let (mother, father) = (&parents[pick()].1, &parents[pick()].1);
            let mut child = mother.point.clone();
            let axes = child.len().max(1);
            for (axis, value) in child.iter_mut().enumerate() {
                // Parents of different variants have nothing to exchange.
                if mother.arm == father.arm && seen.rng.bool() {
                    *value = father.point[axis];
                }
                if seen.rng.usize(..axes) == 0 {
                    *value = seen.rng.u16(..seen.ground.axes(mother.arm)[axis].values().len() as u16);
                }
            }
            if let Some(spot) = settle(seen, child, mother) {
                return Some(spot);
            }
        }
        None
    }
}
