//! The ground a search walks on: all candidates of all arms as numbered spots. Knows who is next to whom.

use std::collections::HashSet;

use crate::candidate::Candidate;
use crate::search::Arm;
use crate::space::Axis;

/// A candidate by number: its arm's first number plus its index in the arm's space.
pub(crate) type Spot = u128;

/// A spot as its arm and value numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standpoint {
    pub(crate) arm: usize,
    pub(crate) point: Vec<u16>,
}

struct Plot {
    arm: Arm,
    first: Spot,
    count: u128,
    /// Indices that may be proposed, where those are not all.
    kept: Option<HashSet<u128>>,
}

/// All candidates of all arms.
pub(crate) struct Ground {
    plots: Vec<Plot>,
    len: u64,
}

impl Ground {
    pub(crate) fn new(arms: Vec<Arm>) -> Self {
        let mut first = 0;
        let mut plots = Vec::new();
        let mut len = 0u64;
        for arm in arms.into_iter().filter(|a| !a.is_empty()) {
            let count = arm.space.count();
            let kept = arm.kept().filter(|k| k.len() as u128 != count).map(|k| k.iter().copied().collect());
            len = len.saturating_add(arm.len());
            plots.push(Plot { arm, first, count, kept });
            first += count;
        }
        Ground { plots, len }
    }

    /// How many candidates there are.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn arms(&self) -> usize {
        self.plots.len()
    }

    /// The axes of an arm.
    pub(crate) fn axes(&self, arm: usize) -> &[Axis] {
        self.plots[arm].arm.space.axes()
    }

    /// How many candidates an arm has.
    pub(crate) fn arm_len(&self, arm: usize) -> u64 {
        self.plots[arm].arm.len()
    }

    /// The n-th candidate of an arm, in the order they should be tried.
    pub(crate) fn nth(&self, arm: usize, n: u64) -> Option<Spot> {
        let plot = &self.plots[arm];
        Some(plot.first + plot.arm.nth(n)?)
    }

    pub(crate) fn place(&self, spot: Spot) -> Option<Standpoint> {
        let arm = self.plots.partition_point(|p| p.first <= spot).checked_sub(1)?;
        let plot = &self.plots[arm];
        let point = plot.arm.space.diagram().ok()?.point(spot - plot.first)?;
        Some(Standpoint { arm, point })
    }

    /// The spot of a point; `None` when it is not legal or was pruned.
    pub(crate) fn spot(&self, arm: usize, point: &[u16]) -> Option<Spot> {
        let plot = &self.plots[arm];
        let index = plot.arm.space.diagram().ok()?.index(point)?;
        (plot.kept.as_ref().is_none_or(|k| k.contains(&index))).then_some(plot.first + index)
    }

    pub(crate) fn candidate(&self, spot: Spot) -> Option<Candidate> {
        let place = self.place(spot)?;
        let arm = &self.plots[place.arm].arm;
        Some(arm.candidate(arm.space.config(&place.point)))
    }

    /// The spot of a candidate, whatever the code behind it.
    pub(crate) fn find(&self, candidate: &Candidate) -> Option<Spot> {
        let mut own = self.plots.iter().enumerate().filter(|(_, p)| p.arm.variant == candidate.variant);
        own.find_map(|(arm, plot)| self.spot(arm, &plot.arm.space.point(&candidate.config)?))
    }

    /// Any candidate: each arm as likely as the other, and within it each config.
    pub(crate) fn random(&self, rng: &mut fastrand::Rng) -> Option<Spot> {
        if self.plots.is_empty() {
            return None;
        }
        let plot = &self.plots[rng.usize(..self.plots.len())];
        let index = match (&plot.kept, plot.arm.kept()) {
            (Some(_), Some(kept)) => kept[rng.usize(..kept.len())],
            _ => rng.u128(..plot.count),
        };
        Some(plot.first + index)
    }

    /// Every spot from one on, round the whole ground.
    pub(crate) fn from(&self, start: Spot) -> impl Iterator<Item = Spot> {
        let total: u128 = self.plots.iter().map(|p| p.count).sum();
        (0..total).map(move |i| (start + i) % total).filter(|spot| {
            let plot = &self.plots[self.plots.partition_point(|p| p.first <= *spot) - 1];
            plot.kept.as_ref().is_none_or(|k| k.contains(&(spot - plot.first)))
        })
    }

    /// Calls `f` with every spot that differs from `place` in one axis, and that axis.
    pub(crate) fn neighbours(&self, place: &Standpoint, mut f: impl FnMut(usize, Spot)) {
        let mut point = place.point.clone();
        for axis in 0..point.len() {
            let from = point[axis];
            for value in 0..self.axes(place.arm)[axis].values().len() as u16 {
                if value != from {
                    point[axis] = value;
                    if let Some(spot) = self.spot(place.arm, &point) {
                        f(axis, spot);
                    }
                }
            }
            point[axis] = from;
        }
    }
}
