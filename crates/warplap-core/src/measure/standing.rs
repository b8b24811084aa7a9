//! Where the lanes stand after some complete rounds: logarithms by lane and round come in, gaps to the leader with
//! their standard errors go out.

use super::stats::{clip_mean, leaning_variance, median, pooled_sigma};
use super::student::{upper_quantile, upper_tail};

/// What is assumed of the noise while a single round cannot tell: wide, so that one sample convinces of little.
const SIGMA_UNKNOWN: f64 = 0.05;

/// The clip mean scatters a little wider than the mean the standard error is made for.
pub(super) const CLIP_MEAN_WIDENING: f64 = 1.1;

/// Doublings of n that the stopping rule shares `delta` between, evenly: from 4 to 127 rounds, enough to settle a dead
/// heat at a sigma of 2.5 %. A longer race has no more to spend, and its promise is that much weaker.
const STOPPING_LOOKS: f64 = 5.0;

/// The gap of each lane to the leader, and how sure it is.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    /// The lanes, in the order they were given.
    pub(super) contestants: Vec<usize>,
    /// The place in `lanes` of the one with the lowest centre.
    pub(super) first: usize,
    /// ln of how much slower each is than the leader.
    pub(super) gap_list: Vec<f64>,
    /// The standard error of each gap.
    errors: Vec<f64>,
    /// How many standard errors convince.
    z: f64,
    /// Degrees of freedom of the standard errors.
    pub(super) freedom: f64,
    /// Rounds looked at.
    rounds: usize,
    /// The robust sigma of each lane between rounds.
    pub(super) spread: Vec<f64>,
    /// The pooled robust sigma.
    pub(super) sigma: f64,
}

impl Standing {
    /// The standing of `lanes` over the first `n` rounds; all of them ran in each. The error `delta` is shared between
    /// all looks, and at each between the lanes that are looked at.
    pub(super) fn after(n: usize, contestants: Vec<usize>, rounds: &[Vec<f64>], delta: f64) -> Standing {
        let centred = centre_rounds(n, &contestants, rounds);
        let count = contestants.len() as f64;
        // Rounds are centred on their own median, which takes a share 1/L of the variance with it.
        let restore = if contestants.len() > 1 { (count / (count - 1.0)).sqrt() } else { 1.0 };
        let sigma = if n > 1 { pooled_sigma(&centred) } else { SIGMA_UNKNOWN };
        let centres: Vec<f64> = centred.iter().map(|row| clip_mean(row, sigma)).collect();
        let spread: Vec<f64> = centred.iter().map(|row| restore * leaning_variance(row, sigma).sqrt()).collect();
        let first = (0..contestants.len()).min_by(|&a, &b| centres[a].total_cmp(&centres[b])).unwrap_or(0);
        let gap_list = centres.iter().map(|c| c - centres.get(first).unwrap_or(c)).collect();
        let errors = spread
            .iter()
            .map(|s| {
                let both = s * s + spread[first] * spread[first];
                CLIP_MEAN_WIDENING * (both / n.max(1) as f64).sqrt()
            })
            .collect();
        let (z, freedom) = (z(n, contestants.len(), delta), freedom(n, contestants.len()));
        Standing { contestants, first, gap_list, errors, z, freedom, rounds: n.max(1), spread, sigma: restore * sigma }
    }

    /// The leader's lane.
    pub(super) fn leader(&self) -> Option<usize> {
        self.contestants.get(self.first).copied()
    }

    /// Half the width of the confidence interval of a place's gap.
    pub(super) fn reach(&self, place: usize) -> f64 {
        self.z * self.errors[place]
    }

    /// The variance of a place's centre.
    pub(super) fn variance(&self, place: usize) -> f64 {
        self.variance_by(self.spread[place])
    }

    /// The variance of the centre of a lane with this spread between rounds.
    pub(super) fn variance_by(&self, spread: f64) -> f64 {
        (CLIP_MEAN_WIDENING * spread).powi(2) / self.rounds as f64
    }

    /// The lower confidence bound of a place's gap.
    pub(super) fn at_least(&self, place: usize) -> f64 {
        self.gap_list[place] - self.reach(place)
    }

    /// Whether the chances of the others to be ahead of the leader by more than `ln_eps` add up to too little to go on
    /// for. Their sum, since a lane far behind has next to none: a bound that gives each lane an equal share of `delta`
    /// asks two or three near-equal lanes for twice the rounds.
    pub(super) fn settled(&self, ln_eps: f64, delta: f64) -> bool {
        let ahead = |p: usize| upper_tail((self.gap_list[p] + ln_eps) / self.errors[p], self.freedom);
        let chances: f64 = (0..self.contestants.len()).filter(|&p| p != self.first).map(ahead).sum();
        chances <= delta / STOPPING_LOOKS
    }
}

/// The rounds less their own median over the lanes: what the clock, a tenant or drift did to all of them is gone.
fn centre_rounds(n: usize, contestants: &[usize], rounds: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut centred: Vec<Vec<f64>> = contestants.iter().map(|&l| rounds[l][..n].to_vec()).collect();
    if contestants.len() > 1 {
        for round in 0..n {
            let middle = median(&centred.iter().map(|row| row[round]).collect::<Vec<_>>());
            centred.iter_mut().for_each(|row| row[round] -= middle);
        }
    }
    centred
}

/// How many standard errors convince at the n-th round. Looks are counted by doublings of n and each gets its
/// delta/(k(k+1)), which sums to delta however long the race runs; the lanes of a look share what it gets.
fn z(n: usize, contestants: usize, delta: f64) -> f64 {
    let look = (n / 4).max(1).ilog2() as f64 + 1.0;
    upper_quantile(delta / (contestants.max(1) as f64 * look * (look + 1.0)), freedom(n, contestants))
}

fn freedom(n: usize, contestants: usize) -> f64 {
    if n > 1 { ((n - 1) * contestants.saturating_sub(1).max(1)) as f64 } else { 4.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hits_a_whole_round_leaves_the_gaps_alone() {
        let quiet = [vec![0.0; 5], vec![0.1; 5], vec![0.3; 5]];
        let jolts = [0.0, 2.0, -1.0, 0.4, 7.0];
        let shaken: Vec<Vec<f64>> = quiet.iter().map(|r| r.iter().zip(jolts).map(|(x, j)| x + j).collect()).collect();
        let standing = Standing::after(5, vec![0, 1, 2], &shaken, 0.01);
        assert_eq!(standing.leader(), Some(0));
        assert!((standing.gap_list[1] - 0.1).abs() < 1e-9 && (standing.gap_list[2] - 0.3).abs() < 1e-9);
    }

    #[test]
    fn the_looks_share_the_allowed_error() {
        let shares: f64 = (1..10_000).map(|k| 1.0 / (k as f64 * (k as f64 + 1.0))).sum();
        assert!((shares - 1.0).abs() < 1e-3);
        assert!(z(4, 2, 0.01) > z(7, 2, 0.01), "more rounds, more certain");
        assert!(z(8, 64, 0.01) > z(8, 9, 0.01), "more lanes, more chances to err");
    }

    #[test]
    fn a_lane_far_behind_does_not_keep_a_settled_race_going() {
        let settled = |gap_list: &[f64]| {
            let mut rng = fastrand::Rng::with_seed(5);
            let rounds: Vec<Vec<f64>> =
                gap_list.iter().map(|g| (0..8).map(|_| g + 0.04 * (rng.f64() - 0.5)).collect()).collect();
            Standing::after(8, (0..gap_list.len()).collect(), &rounds, 0.01).settled(0.01f64.ln_1p(), 0.01)
        };
        assert!(settled(&[0.0, 0.05]) && settled(&[0.0, 0.05, 0.2, 0.3, 0.4]));
        assert!(!settled(&[0.0, 0.0]), "a dead heat takes longer");
    }

    #[test]
    fn one_round_convinces_of_little() {
        let standing = Standing::after(1, vec![0, 1], &[vec![0.0], vec![0.1]], 0.01);
        assert!(standing.at_least(1) < 0.0);
    }

    #[test]
    fn nobody_stands_in_an_empty_field() {
        let standing = Standing::after(0, Vec::new(), &[], 0.01);
        assert_eq!(standing.leader(), None);
        assert!(standing.settled(0.01, 0.01));
    }
}
