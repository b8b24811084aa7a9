//! Gaps: where each lane stands behind the leader, and who that is.

use super::sheet::Sheet;

/// Where a lane stands at the end: ln of its gap to the leader, and half the width of that gap's interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    pub(super) gap: f64,
    pub(super) reach: f64,
}

/// The live lane with the lowest gap.
pub(super) fn leader_of(sheet: &Sheet<'_>, gaps: &[Option<Gap>]) -> Option<usize> {
    let by_gap = |&a: &usize, &b: &usize| gap_of(gaps, a).total_cmp(&gap_of(gaps, b));
    sheet.live().into_iter().filter(|&l| gaps[l].is_some()).min_by(by_gap)
}

/// The gap of a lane; infinite where nothing is known of it.
pub(super) fn gap_of(gaps: &[Option<Gap>], lane: usize) -> f64 {
    gaps[lane].map_or(f64::INFINITY, |g| g.gap)
}
