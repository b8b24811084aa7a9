//! Differential evolution: a member of the population moves by the difference of two others.

use crate::search::ground::Spot;
use crate::search::population::{fittest, rounded, settle};
use crate::search::walk::{Seen, WalkRule};

const SIZE: usize = 20;
/// How far along the difference, and how many axes take part.
const SCALE: f64 = 0.7;
const CROSS: f64 = 0.8;

/// Differential evolution on value numbers.
pub(crate) struct Evolution;

impl WalkRule for Evolution {
    fn next(&mut self, seen: &mut Seen) -> Option<Spot> {
        if seen.asked() < SIZE {
            return seen.random();
        }
        let members = fittest(seen, SIZE);
        let (_, target) = members.get(seen.rng.usize(..members.len().max(1)))?;
        let same: Vec<&Vec<u16>> = members.iter().filter(|m| m.1.arm == target.arm).map(|m| &m.1.point).collect();
        for _ in 0..30 {
            let mut pick = || same[seen.rng.usize(..same.len())];
            let (leader, a, b) = (same[0], pick(), pick());
            let mut point = target.point.clone();
            for axis in 0..point.len() {
                if seen.rng.f64() < CROSS {
                    let difference = f64::from(a[axis]) - f64::from(b[axis]);
                    // A little noise: on coarse axes the differences soon are all zero.
                    let noise = (seen.rng.f64() - 0.5) * 1.2;
                    let values = seen.ground.axes(target.arm)[axis].values().len();
                    point[axis] = rounded(f64::from(leader[axis]) + SCALE * difference + noise, values);
                }
            }
            if let Some(spot) = settle(seen, point, target) {
                return Some(spot);
            }
        }
        None
    }
}
