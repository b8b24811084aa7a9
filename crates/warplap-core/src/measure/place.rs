//! Places: where each lane of a race stands behind the leader, and who that is.

use super::gap::Gap;
use super::sheet::Sheet;
use super::standing::CLIP_MEAN_WIDENING;
use super::stats::{POOLED_WEIGHT, clip_mean, leaning_variance};

/// Where a lane stands: how far behind the leader, and how surely.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placing {
    /// ln of how much slower it is than the leader.
    pub at: f64,
    /// The variance of its own centre: two lanes' add up to that of the gap between them.
    pub variance: f64,
    /// Degrees of freedom of the variance.
    pub freedom: f64,
    /// Half the width of the interval within the race, wide enough for all lanes and looks.
    pub reach: f64,
}

impl Placing {
    /// A place that is known for certain.
    pub fn sure(at: f64) -> Placing {
        Placing { at, variance: 0.0, freedom: Gap::NONE.freedom, reach: 0.0 }
    }

    /// The place behind another lane by the rounds both ran in; `None` where there was none.
    pub(crate) fn paired(gap_list: &[f64], sigma: f64) -> Option<Placing> {
        let (sigma, rounds) = (sigma * std::f64::consts::SQRT_2, gap_list.len() as f64);
        (!gap_list.is_empty()).then(|| Placing {
            at: clip_mean(gap_list, sigma),
            variance: CLIP_MEAN_WIDENING.powi(2) * leaning_variance(gap_list, sigma) / rounds,
            freedom: POOLED_WEIGHT + rounds - 1.0,
            reach: 0.0,
        })
    }

    /// How far this one is behind another of the same race.
    pub fn behind(&self, other: &Placing) -> Gap {
        let error = (self.variance + other.variance).sqrt();
        Gap { ln: self.at - other.at, error, freedom: self.freedom.min(other.freedom) }
    }
}

/// The live lane that stands first.
pub(super) fn leader_of(sheet: &Sheet<'_>, places: &[Option<Placing>]) -> Option<usize> {
    let by_place = |&a: &usize, &b: &usize| at(places, a).total_cmp(&at(places, b));
    sheet.live().into_iter().filter(|&l| places[l].is_some()).min_by(by_place)
}

/// Where a lane stands; infinitely far behind where nothing is known of it.
pub(super) fn at(places: &[Option<Placing>], lane: usize) -> f64 {
    places[lane].map_or(f64::INFINITY, |p| p.at)
}

/// The chances of the others, added up, to be ahead of a lane by more than `ln_eps`.
pub(super) fn doubt(places: &[Option<Placing>], leader: usize, ln_eps: f64) -> f64 {
    let Some(first) = places[leader] else { return 1.0 };
    let others = places.iter().enumerate().filter(|(lane, _)| *lane != leader);
    others.filter_map(|(_, place)| Some(place.as_ref()?.behind(&first).chance_ahead(ln_eps))).sum()
}
