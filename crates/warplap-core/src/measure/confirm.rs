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

use super::gap::{Gap, leader_of};
use super::heat::bar;
use super::plan::RacePlan;
use super::sheet::{LaneState, Sheet};
use super::stats::{POOLED_WEIGHT, clip_mean, leaning_variance, median};
use super::student::upper_quantile;

/// Lanes within this share of the leader are worth a second look.
const NEAR: f64 = 0.05;
/// At most this many of them.
const FINALISTS: usize = 4;
/// Blocks, besides the race itself.
const BLOCKS: usize = 4;
/// Paired rounds in a block.
const ROUNDS: usize = 3;
/// Seconds between blocks: longer than a clock's step, short against a tuning.
const APART: f64 = 0.1;
/// A race as long as this whole stage has seen as much of the machine's moods, and would double its price.
const LONG_RACE: usize = BLOCKS * ROUNDS;
/// Variance of how differently two lanes follow the clock: memory-bound kernels follow it by a third, arithmetic-bound
/// ones fully.
const SLOPE_VARIANCE: f64 = 0.06;

/// One block: ln seconds by finalist and round.
type Block = Vec<Vec<f64>>;

/// Runs the stage where there are at least two near-equal lanes, and rewrites their `gaps` and places. Gives the
/// rounds run. Stopped, or with its leader failed, it leaves the race's own gaps as they are.
pub(super) fn confirm(
    sheet: &mut Sheet<'_>,
    plan: &RacePlan,
    gaps: &mut [Option<Gap>],
    sigma: f64,
    rng: &mut fastrand::Rng,
) -> u32 {
    let Some(before) = leader_of(sheet, gaps) else { return 0 };
    let mut field = finalists(sheet, gaps, before);
    if field.len() < 2 || sheet.rounds[before].len() >= LONG_RACE {
        return 0;
    }
    let common = field.iter().map(|&l| sheet.rounds[l].len()).min().unwrap_or(0);
    let mut blocks: Vec<Block> = vec![field.iter().map(|&l| sheet.rounds[l][..common].to_vec()).collect()];
    let mut rounds = 0;
    for _ in 0..BLOCKS {
        sheet.pause(APART);
        let mut block = vec![Vec::new(); field.len()];
        for _ in 0..ROUNDS {
            let mut order: Vec<usize> = (0..field.len()).collect();
            rng.shuffle(&mut order);
            for i in order {
                if let Some(x) = sheet.take(field[i]) {
                    block[i].push(x);
                }
            }
            if sheet.stopped || sheet.failed(before) {
                return rounds;
            }
            rounds += 1;
            // A finalist that failed takes its column with it.
            for i in (0..field.len()).rev().filter(|&i| sheet.failed(field[i])).collect::<Vec<_>>() {
                field.remove(i);
                block.remove(i);
                blocks.iter_mut().for_each(|b| drop(b.remove(i)));
            }
        }
        blocks.push(block);
    }
    if field.len() > 1 {
        let (level, doubt) = at_common_level(&blocks, sigma);
        rewrite(sheet, plan, gaps, &field, &level, doubt, sigma);
    }
    rounds
}

/// The leader, then the nearest lanes to it that have not failed.
fn finalists(sheet: &Sheet<'_>, gaps: &[Option<Gap>], leader: usize) -> Vec<usize> {
    let mut near: Vec<(f64, usize)> = gaps
        .iter()
        .enumerate()
        .filter(|(lane, _)| !sheet.failed(*lane))
        .filter_map(|(lane, gap)| gap.map(|g| (g.gap, lane)))
        .filter(|(gap, _)| *gap <= NEAR.ln_1p())
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

/// Puts the confirmed gaps in place of the race's, and says who is still in.
fn rewrite(
    sheet: &mut Sheet<'_>,
    plan: &RacePlan,
    gaps: &mut [Option<Gap>],
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
    let z = upper_quantile(plan.delta / field.len() as f64, POOLED_WEIGHT + count - 1.0);
    let expected = sigma * (2.0 / ROUNDS as f64).sqrt();
    // The others keep their distance to the lane that led them until now.
    let shift = centres[0] - centres[first];
    for (lane, slot) in gaps.iter_mut().enumerate() {
        if let (false, Some(g)) = (field.contains(&lane), slot) {
            g.gap += shift;
        }
    }
    for (i, &lane) in field.iter().enumerate() {
        let between: Vec<f64> = blocks.iter().map(|b| clip_mean(&b[i], sigma) - clip_mean(&b[first], sigma)).collect();
        let reach =
            if i == first { 0.0 } else { z * (leaning_variance(&between, expected) / count + 2.0 * doubt).sqrt() };
        let gap = centres[i] - centres[first];
        gaps[lane] = Some(Gap { gap, reach });
        let outpaced = gap - reach > bar(lane, plan);
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
