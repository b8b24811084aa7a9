//! Hints: what a whole record from elsewhere says of the spots here. Candidates with their times come in; a forecast by
//! spot, the spots in its order, and how much each axis matters there go out. How far it is believed is the mind's
//! affair.

use std::collections::HashMap;

use crate::candidate::Candidate;
use crate::search::algorithms::gaussian::{Coded, Likeness};
use crate::search::ground::{Ground, Spot};

/// Records of fewer candidates say too little, and so do those that know less than this share of the ground: between
/// spots with a hint and spots without one there would be steps that are none.
const LEAST: usize = 20;
const SHARE: f64 = 0.75;
/// Times the weights of the axes are learnt from, and how often.
const LEARNT_FROM: usize = 80;
const LESSONS: usize = 3;

/// Times slower than the median are told apart less: nobody needs to know how bad the bad ones are.
const DULLED: f64 = 0.2;

/// The logarithm of a time, dulled above that of a middle one.
pub(crate) fn dulled(time: f64, middle: f64) -> f64 {
    let (time, middle) = (time.ln(), middle.ln());
    if time < middle { time } else { middle + DULLED * (time - middle) }
}

/// Values less their mean in units of their deviation, the mean and the deviation.
pub(crate) fn standardised(mut values: Vec<f64>) -> (Vec<f64>, f64, f64) {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let deviation = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count).sqrt().max(1e-9);
    values.iter_mut().for_each(|v| *v = (*v - mean) / deviation);
    (values, mean, deviation)
}

/// Times from elsewhere by spot.
#[derive(Default)]
pub(crate) struct Hints {
    /// Logarithms of times, less that of the middle one, dulled above it.
    by_spot: HashMap<Spot, f64, foldhash::fast::FixedState>,
    /// The spots, fastest first.
    order: Vec<Spot>,
}

impl Hints {
    /// What a record says of this ground; nothing where it knows too few of its spots.
    pub(crate) fn new(ground: &Ground, elsewhere: &[(Candidate, f64)]) -> Self {
        let sound = elsewhere.iter().filter(|(_, time)| time.is_finite() && *time > 0.0);
        let mut known: Vec<(f64, Spot)> = sound.filter_map(|(c, time)| Some((*time, ground.find(c)?))).collect();
        if known.len() < LEAST || (known.len() as f64) < SHARE * ground.len() as f64 {
            return Hints::default();
        }
        known.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let middle = known[(known.len() - 1) / 2].0;
        let by_spot = known.iter().map(|(time, spot)| (*spot, dulled(*time, middle) - middle.ln())).collect();
        Hints { by_spot, order: known.into_iter().map(|k| k.1).collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The hint at a spot; 0, which is the middle, where there is none.
    pub(crate) fn at(&self, spot: Spot) -> f64 {
        self.by_spot.get(&spot).copied().unwrap_or(0.0)
    }

    /// The spots it knows, fastest first.
    pub(crate) fn order(&self) -> &[Spot] {
        &self.order
    }

    /// How much each axis matters by the hints; by nothing at all where there are none.
    pub(crate) fn likeness(&self, ground: &Ground) -> Likeness {
        let mut likeness = Likeness::new(ground);
        let count = LEARNT_FROM.min(self.order.len());
        // Both ends say which axes matter.
        let some = (0..count).map(|i| self.order[i * self.order.len() / count]);
        let coded = |spot: Spot| Some((likeness.coded(&ground.place(spot)?), self.at(spot)));
        let (points, hints): (Vec<Coded>, Vec<f64>) = some.filter_map(coded).unzip();
        let hints = standardised(hints).0;
        for _ in 0..if self.is_empty() { 0 } else { LESSONS } {
            likeness.learn(&points, &hints);
        }
        likeness
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidates::variant::Priority;
    use crate::search::tests::arm;
    use crate::space::Config;

    #[test]
    fn a_record_hints_at_what_it_knows_and_small_ones_at_nothing() {
        let arm = arm("a", Priority::High, 30);
        let ground = Ground::new(vec![arm.clone()]);
        let time = |i: i64| (arm.candidate(Config::new().with("i", i)), 1.0 + i as f64);
        let hints = Hints::new(&ground, &(0..25).map(time).collect::<Vec<_>>());
        let spot = |i: i64| ground.find(&time(i).0).unwrap();
        assert_eq!(hints.order()[..2], [spot(0), spot(1)]);
        assert!(hints.at(spot(0)) < hints.at(spot(12)) && hints.at(spot(12)) < hints.at(spot(24)));
        assert!(hints.at(spot(24)) < -0.3 * hints.at(spot(0)), "slow ones are told apart less");
        assert_eq!(hints.at(spot(29)), 0.0);
        assert!(Hints::new(&ground, &(0..5).map(time).collect::<Vec<_>>()).is_empty());
    }
}
