//! What searches with a population share: who is in it, and new spots made from points.

use crate::search::ground::{Spot, Standpoint};
use crate::search::walk::Seen;

/// The fastest `size` spots so far with their places.
pub(crate) fn fittest(seen: &Seen, size: usize) -> Vec<(f64, Standpoint)> {
    seen.right.iter().take(size).filter_map(|(time, spot)| Some((*time, seen.ground.place(*spot)?))).collect()
}

/// A value number near a real coordinate, kept on the axis.
pub(crate) fn rounded(coordinate: f64, values: usize) -> u16 {
    coordinate.round().clamp(0.0, values.saturating_sub(1) as f64) as u16
}

/// The spot of a point if it is new; where it is not legal or not new, that of a point near it: one axis after the
/// other takes the value of `from`, until something new and legal is met.
pub(crate) fn settle(seen: &mut Seen, mut point: Vec<u16>, from: &Standpoint) -> Option<Spot> {
    let mut order: Vec<usize> = (0..point.len()).collect();
    seen.rng.shuffle(&mut order);
    for axis in order {
        if let Some(spot) = seen.ground.spot(from.arm, &point).filter(|s| seen.is_new(*s)) {
            return Some(spot);
        }
        point[axis] = from.point[axis];
    }
    None
}
