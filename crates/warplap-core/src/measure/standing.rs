//! Where the lanes stand after some complete rounds: logarithms by lane and round come in, gaps to the leader with
//! their standard errors go out.

use super::stats::{clip_mean, leaning_variance, median, pooled_sigma};
use super::student::upper_quantile;

/// What is assumed of the noise while a single round cannot tell: wide, so that one sample convinces of little.
const SIGMA_UNKNOWN: f64 = 0.05;

/// The clip mean scatters a little wider than the mean the standard error is made for.
const CLIP_MEAN_WIDENING: f64 = 1.1;

/// The gap of each lane to the leader, and how sure it is.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    /// The lanes, in the order they were given.
    pub(super) lanes: Vec<usize>,
    /// The place in `lanes` of the one with the lowest centre.
    pub(super) first: usize,
    /// ln of how much slower each is than the leader.
    pub(super) gaps: Vec<f64>,
    /// Half the width of each gap's confidence interval (z times its standard error).
    pub(super) reach: Vec<f64>,
    /// The robust sigma of each lane between rounds.
    pub(super) spread: Vec<f64>,
    /// The pooled robust sigma.
    pub(super) sigma: f64,
}

impl Standing {
    /// The standing of `lanes` over the first `n` rounds; all of them ran in each. `field` is how many lanes started:
    /// the error `delta` is shared between all of them and all looks.
    pub(super) fn after(n: usize, lanes: Vec<usize>, rounds: &[Vec<f64>], field: usize, delta: f64) -> Standing {
        let centred = centre_rounds(n, &lanes, rounds);
        let count = lanes.len() as f64;
        // Rounds are centred on their own median, which takes a share 1/L of the variance with it.
        let restore = if lanes.len() > 1 { (count / (count - 1.0)).sqrt() } else { 1.0 };
        let sigma = if n > 1 { pooled_sigma(&centred) } else { SIGMA_UNKNOWN };
        let centres: Vec<f64> = centred.iter().map(|row| clip_mean(row, sigma)).collect();
        let spread: Vec<f64> = centred.iter().map(|row| restore * leaning_variance(row, sigma).sqrt()).collect();
        let first = (0..lanes.len()).min_by(|&a, &b| centres[a].total_cmp(&centres[b])).unwrap_or(0);
        let z = z(n, lanes.len(), field, delta);
        let gaps = centres.iter().map(|c| c - centres.get(first).unwrap_or(c)).collect();
        let reach = spread
            .iter()
            .map(|s| {
                let both = s * s + spread[first] * spread[first];
                z * CLIP_MEAN_WIDENING * (both / n.max(1) as f64).sqrt()
            })
            .collect();
        Standing { lanes, first, gaps, reach, spread, sigma: restore * sigma }
    }

    /// The leader's lane.
    pub(super) fn leader(&self) -> Option<usize> {
        self.lanes.get(self.first).copied()
    }

    /// The lower confidence bound of a place's gap.
    pub(super) fn at_least(&self, place: usize) -> f64 {
        self.gaps[place] - self.reach[place]
    }

    /// Whether nobody can be ahead of the leader by more than `ln_eps`.
    pub(super) fn settled(&self, ln_eps: f64) -> bool {
        (0..self.lanes.len()).all(|p| p == self.first || self.at_least(p) > -ln_eps)
    }
}

/// The rounds less their own median over the lanes: what the clock, a tenant or drift did to all of them is gone.
fn centre_rounds(n: usize, lanes: &[usize], rounds: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut centred: Vec<Vec<f64>> = lanes.iter().map(|&l| rounds[l][..n].to_vec()).collect();
    if lanes.len() > 1 {
        for round in 0..n {
            let middle = median(&centred.iter().map(|row| row[round]).collect::<Vec<_>>());
            centred.iter_mut().for_each(|row| row[round] -= middle);
        }
    }
    centred
}

/// How many standard errors convince at the n-th round. Looks are counted by doublings of n and each gets its
/// delta/(k(k+1)), which sums to delta however long the race runs.
pub(super) fn z(n: usize, lanes: usize, field: usize, delta: f64) -> f64 {
    let look = (n / 4).max(1).ilog2() as f64 + 1.0;
    let tail = delta / (field.max(1) as f64 * look * (look + 1.0));
    let freedom = (n.saturating_sub(1) * lanes.saturating_sub(1).max(1)) as f64;
    upper_quantile(tail, if n > 1 { freedom } else { 4.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hits_a_whole_round_leaves_the_gaps_alone() {
        let quiet = [vec![0.0; 5], vec![0.1; 5], vec![0.3; 5]];
        let jolts = [0.0, 2.0, -1.0, 0.4, 7.0];
        let shaken: Vec<Vec<f64>> = quiet.iter().map(|r| r.iter().zip(jolts).map(|(x, j)| x + j).collect()).collect();
        let standing = Standing::after(5, vec![0, 1, 2], &shaken, 3, 0.01);
        assert_eq!(standing.leader(), Some(0));
        assert!((standing.gaps[1] - 0.1).abs() < 1e-9 && (standing.gaps[2] - 0.3).abs() < 1e-9);
    }

    #[test]
    fn the_looks_share_the_allowed_error() {
        let shares: f64 = (1..10_000).map(|k| 1.0 / (k as f64 * (k as f64 + 1.0))).sum();
        assert!((shares - 1.0).abs() < 1e-3);
        assert!(z(4, 2, 2, 0.01) > z(7, 2, 2, 0.01), "more rounds, more certain");
        assert!(z(8, 9, 64, 0.01) > z(8, 9, 8, 0.01), "more lanes, more chances to err");
    }

    #[test]
    fn one_round_convinces_of_little() {
        let standing = Standing::after(1, vec![0, 1], &[vec![0.0], vec![0.1]], 2, 0.01);
        assert!(standing.at_least(1) < 0.0);
    }

    #[test]
    fn nobody_stands_in_an_empty_field() {
        let standing = Standing::after(0, Vec::new(), &[], 0, 0.01);
        assert_eq!(standing.leader(), None);
        assert!(standing.settled(0.01));
    }
}
