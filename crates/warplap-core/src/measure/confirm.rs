//! The confirm stage: the race's near-equal finalists come in; their gaps, seen in several of the machine's moods, go
//! out.
//!
//! A race is over in milliseconds and sees one state of the clock. Lanes bound by memory follow the clock less than
//! lanes bound by arithmetic, so the order of two near-equal lanes can differ between a boosted, a nominal and a
//! throttled clock, and more samples at the same moment do not help. So the nearest lanes, outpaced ones included, run
//! a few more paired rounds in blocks spread over time; each lane's u = x - level is fitted, block by block, against
//! the level (the rounds' median over the finalists) by a slope that is held back towards zero, and the lanes are
//! compared at one common level: that of the second fastest block, since throttling and tenants only ever slow a
//! machine down and the fastest block may be a boost. What the fit cannot explain between blocks widens the gap's
//! interval.

use super::place::{Placing, doubt, leader_of};
use super::plan::RacePlan;
use super::rounds::bar;
use super::sheet::{LaneState, Sheet};
use super::stats::{POOLED_WEIGHT, clip_mean, leaning_variance, median};
use super::student::upper_quantile;

/// Lanes within this share of the leader are worth a second look.
const NEAR: f64 = 0.05;
/// At most this many of them.
const FINALISTS: usize = 4;
/// Blocks, besides the race itself; as long as the verdict is open there are more.
const BLOCKS: usize = 4;
/// Paired rounds in a block.
const ROUNDS: usize = 3;
/// Rounds in one of the blocks that come after, where they take no longer than the pause before them.
const MORE_ROUNDS: f64 = 12.0;
/// Complete blocks without which the race's own gaps stand.
const LEAST_BLOCKS: usize = 2;
/// Seconds between blocks: longer than a clock's step, short against a tuning.
const APART: f64 = 0.1;
/// A race as long as this whole stage has seen as much of the machine's moods, and would double its price.
const LONG_RACE: usize = BLOCKS * ROUNDS;
/// Variance of how differently two lanes follow the clock: memory-bound kernels follow it by a third, arithmetic-bound
/// ones fully.
const SLOPE_VARIANCE: f64 = 0.06;

/// One block: ln seconds by finalist and round.
type Block = Vec<Vec<f64>>;

/// What the stage did.
pub(super) struct Confirmed {
    pub(super) rounds: u32,
    /// Whether somebody may still be ahead of the leader by more than `eps`.
    pub(super) unsure: bool,
}

/// Runs the stage where there are near-equal lanes or the verdict is open, and rewrites their `places`. Stopped before
/// it has seen enough, or with its leader failed, it leaves the race's own places as they are.
pub(super) fn confirm(
    sheet: &mut Sheet<'_>,
    plan: &RacePlan,
    places: &mut [Option<Placing>],
    sigma: f64,
    rng: &mut fastrand::Rng,
) -> Confirmed {
    let mut done = Confirmed { rounds: 0, unsure: false };
    let Some(before) = leader_of(sheet, places) else { return done };
    let mut field = finalists(sheet, places, before);
    let mut open = is_open(sheet, plan, places, sigma);
    let long = field.len() < 2 || sheet.rounds[before].len() >= LONG_RACE;
    let common = field.iter().map(|&l| sheet.rounds[l].len()).min().unwrap_or(0);
    let mut blocks: Vec<Block> = vec![field.iter().map(|&l| sheet.rounds[l][..common].to_vec()).collect()];
    let mut length = ROUNDS;
    while open.any() || (!long && blocks.len() <= BLOCKS) {
        if done.rounds >= plan.max_rounds {
            break;
        }
        sheet.pause(APART);
        let before_block = sheet.spent;
        let mut block = vec![Vec::new(); field.len()];
        for _ in 0..length {
            let mut order: Vec<usize> = (0..field.len()).collect();
            rng.shuffle(&mut order);
            for i in order {
                if let Some(x) = sheet.take(field[i]) {
                    block[i].push(x);
                }
            }
            if sheet.failed(before) {
                return done;
            }
            if sheet.stopped {
                break;
            }
            done.rounds += 1;
            // A finalist that failed takes its column with it.
            for i in (0..field.len()).rev().filter(|&i| sheet.failed(field[i])).collect::<Vec<_>>() {
                field.remove(i);
                block.remove(i);
                blocks.iter_mut().for_each(|b| drop(b.remove(i)));
            }
        }
        if sheet.stopped {
            break;
        }
        blocks.push(block);
        if blocks.len() > BLOCKS {
            rewrite_by(sheet, plan, places, &field, &blocks, sigma);
            open = is_open(sheet, plan, places, sigma);
            let round = (sheet.spent - before_block) / length as f64;
            length = (APART / round.max(1e-9)).clamp(ROUNDS as f64, MORE_ROUNDS) as usize;
        }
    }
    if (LEAST_BLOCKS + 1..=BLOCKS).contains(&blocks.len()) {
        rewrite_by(sheet, plan, places, &field, &blocks, sigma);
        open = is_open(sheet, plan, places, sigma);
    }
    done.unsure = open.unsure;
    done
}

/// What more samples would say more about.
struct Open {
    /// Somebody may be ahead of the leader by more than `eps`.
    unsure: bool,
    /// The leader's own time is not known.
    wide: bool,
}

impl Open {
    fn any(&self) -> bool {
        self.unsure || self.wide
    }
}

fn is_open(sheet: &Sheet<'_>, plan: &RacePlan, places: &[Option<Placing>], sigma: f64) -> Open {
    let Some(leader) = leader_of(sheet, places) else { return Open { unsure: false, wide: false } };
    Open {
        unsure: doubt(places, leader, plan.eps.ln_1p()) > plan.delta,
        wide: sheet.half_width(leader, sigma) > plan.known_within,
    }
}

fn rewrite_by(
    sheet: &mut Sheet<'_>,
    plan: &RacePlan,
    places: &mut [Option<Placing>],
    field: &[usize],
    blocks: &[Block],
    sigma: f64,
) {
    if field.len() > 1 {
        let (level, doubt) = at_common_level(blocks, sigma);
        rewrite(sheet, plan, places, field, &level, doubt, sigma);
    }
}

/// The leader, then the nearest lanes to it that have not failed.
fn finalists(sheet: &Sheet<'_>, places: &[Option<Placing>], leader: usize) -> Vec<usize> {
    let mut near: Vec<(f64, usize)> = places
        .iter()
        .enumerate()
        .filter(|(lane, _)| !sheet.failed(*lane))
        .filter_map(|(lane, place)| place.map(|p| (p.at, lane)))
        .filter(|(at, lane)| *at <= NEAR.ln_1p() || sheet.places[*lane] == LaneState::Live)
        .collect();
    near.sort_by(|a, b| (a.1 != leader).cmp(&(b.1 != leader)).then(a.0.total_cmp(&b.0)));
    near.into_iter().take(FINALISTS).map(|(_, lane)| lane).collect()
}

/// The blocks with every round less its level, and what the block's level explains of each lane brought to one common
/// level; and the variance that the slope's own error puts into a lane's centre.
fn at_common_level(blocks: &[Block], sigma: f64) -> (Vec<Block>, f64) {
    let level_of = |block: &Block, round: usize| median(&block.iter().map(|row| row[round]).collect::<Vec<_>>());
    let mut centred = blocks.to_vec();
    let mut levels = Vec::with_capacity(blocks.len());
    for (block, centred) in blocks.iter().zip(&mut centred) {
        let rounds: Vec<f64> = (0..block[0].len()).map(|r| level_of(block, r)).collect();
        for row in centred.iter_mut() {
            row.iter_mut().zip(&rounds).for_each(|(x, level)| *x -= level);
        }
        // By the median, here and of the lanes: a round that a step of the clock cuts in two has no one level.
        levels.push(median(&rounds));
    }
    let mut order = levels.clone();
    order.sort_by(f64::total_cmp);
    let common = order[1.min(order.len() - 1)];
    let variance = sigma * sigma / 2.0;
    for lane in 0..blocks[0].len() {
        let points: Vec<(f64, f64)> = levels.iter().zip(&centred).map(|(l, b)| (*l, median(&b[lane]))).collect();
        let slope = held_back_slope(&points, variance);
        for (block, level) in centred.iter_mut().zip(&levels) {
            block[lane].iter_mut().for_each(|u| *u -= slope * (level - common));
        }
    }
    let middle = mean(&levels);
    let across: f64 = levels.iter().map(|l| (l - middle).powi(2)).sum();
    (centred, variance / (across + variance / SLOPE_VARIANCE) * (middle - common).powi(2))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The slope through (level, u), held back towards zero by what slopes can be expected: a still clock gives none.
fn held_back_slope(points: &[(f64, f64)], variance: f64) -> f64 {
    let middle = mean(&points.iter().map(|p| p.0).collect::<Vec<_>>());
    let centre = mean(&points.iter().map(|p| p.1).collect::<Vec<_>>());
    let across: f64 = points.iter().map(|p| (p.0 - middle).powi(2)).sum();
    let along: f64 = points.iter().map(|p| (p.0 - middle) * (p.1 - centre)).sum();
    along / (across + variance / SLOPE_VARIANCE)
}

/// Puts the confirmed places where the race's were, and says who is still in.
fn rewrite(
    sheet: &mut Sheet<'_>,
    plan: &RacePlan,
    places: &mut [Option<Placing>],
    field: &[usize],
    blocks: &[Block],
    doubt: f64,
    sigma: f64,
) {
    let centres: Vec<f64> = (0..field.len())
        .map(|i| clip_mean(&blocks.iter().flat_map(|b| b[i].iter().copied()).collect::<Vec<_>>(), sigma))
        .collect();
    let first = (0..field.len()).min_by(|&a, &b| centres[a].total_cmp(&centres[b])).unwrap_or(0);
    let count = blocks.len() as f64;
    let freedom = POOLED_WEIGHT + count - 1.0;
    let z = upper_quantile(plan.delta / field.len() as f64, freedom);
    let expected = sigma * (2.0 / ROUNDS as f64).sqrt();
    let variance = |i: usize| {
        let between: Vec<f64> = blocks.iter().map(|b| clip_mean(&b[i], sigma) - clip_mean(&b[first], sigma)).collect();
        leaning_variance(&between, expected) / count + 2.0 * doubt
    };
    let variances: Vec<f64> = (0..field.len()).map(|i| if i == first { f64::INFINITY } else { variance(i) }).collect();
    // Gaps to the first are what was seen; its own part of them is half of the surest one.
    let own = variances.iter().copied().fold(f64::INFINITY, f64::min) / 2.0;
    // The others keep their distance to the lane that led them until now.
    let shift = places[field[0]].map_or(0.0, |p| centres[0] - centres[first] - p.at);
    for (lane, slot) in places.iter_mut().enumerate() {
        if let (false, Some(place)) = (field.contains(&lane), slot) {
            place.at += shift;
        }
    }
    for (i, &lane) in field.iter().enumerate() {
        let (at, reach) = match i == first {
            true => (0.0, 0.0),
            false => (centres[i] - centres[first], z * variances[i].sqrt()),
        };
        let variance = if i == first { own } else { variances[i] - own };
        places[lane] = Some(Placing { at, variance, freedom, reach });
        let outpaced = at - reach > bar(lane, plan);
        sheet.places[lane] = if outpaced { LaneState::Outpaced { by: field[first] } } else { LaneState::Live };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_compared_at_one_level_of_the_clock() {
        // Lane 0 follows the clock fully, lanes 1 and 2 by 40 %; lane 0 is the fastest at the nominal clock only.
        let at = |clock: f64| vec![vec![clock; 3], vec![0.02 + 0.4 * clock; 3], vec![0.03 + 0.4 * clock; 3]];
        let blocks = [at(0.15), at(0.15), at(0.0), at(0.0), at(0.15)];
        let (level, _) = at_common_level(&blocks, 0.005);
        for block in level {
            let gap = block[1][0] - block[0][0];
            assert!((0.01..0.03).contains(&gap), "{gap}");
        }
    }

    #[test]
    fn a_still_clock_gives_no_slope() {
        let points: Vec<(f64, f64)> = (0..20).map(|i| (1e-4 * f64::from(i % 3), 0.01 * f64::from(i % 2))).collect();
        assert!(held_back_slope(&points, 5e-5).abs() < 0.01);
        assert_eq!(held_back_slope(&[], 5e-5), 0.0);
    }
}
