//! Dealing: what is left of a space after pruning comes in; one share of it, with the anchors that every share has, goes
//! out. Every card deals for itself and all deal alike: nothing but the number of a share travels.

use serde::{Deserialize, Serialize};

use crate::search::Arm;

/// Candidates that every share has.
pub const ANCHORS: usize = 4;

/// The most shares of a space.
pub const MOST_SHARES: u32 = 1024;

/// The order that all cards deal in. Neighbours in a space are alike: dealt as they lie, a share would get all of the
/// slow ones where the number of shares divides an axis.
const SHUFFLE: u64 = 0x73_70_6c_69_74;

/// One share of a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Which, from 0.
    pub nth: u32,
    /// Of how many.
    pub of: u32,
}

impl Share {
    /// Whether there is such a share.
    pub fn is_sound(self) -> bool {
        (1..=MOST_SHARES).contains(&self.of) && self.nth < self.of
    }

    /// The positions of this share in lists of these lengths, each in its own order.
    pub fn of_lists(self, lengths: &[usize]) -> Vec<Vec<usize>> {
        let mut all: Vec<(usize, usize)> = spots(lengths).collect();
        let anchors = anchors(lengths);
        all.retain(|spot| !anchors.contains(spot));
        fastrand::Rng::with_seed(SHUFFLE).shuffle(&mut all);
        let mut own: Vec<Vec<usize>> = vec![Vec::new(); lengths.len()];
        let dealt = all.into_iter().skip(self.nth as usize).step_by(self.of.max(1) as usize);
        anchors.into_iter().chain(dealt).for_each(|(list, at)| own[list].push(at));
        own.iter_mut().for_each(|list| list.sort_unstable());
        own
    }

    /// This share of arms. A space too large to list is searched by everyone, each from a seed of its own.
    pub(crate) fn of_arms(self, arms: Vec<Arm>) -> Vec<Arm> {
        let length = |arm: &Arm| arm.kept().map_or(0, <[u128]>::len);
        let lengths: Vec<usize> = arms.iter().map(length).collect();
        let dealt = arms.into_iter().zip(self.of_lists(&lengths)).map(|(arm, own)| match arm.kept() {
            Some(kept) => {
                let own = own.into_iter().map(|at| kept[at]).collect();
                arm.keep(own)
            }
            None => arm,
        });
        dealt.filter(|arm| !arm.is_empty()).collect()
    }

    /// The seed of its searches.
    pub(crate) fn seed(self, seed: u64) -> u64 {
        seed.wrapping_add(u64::from(self.nth).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

/// The anchors in lists of these lengths: the first of each of the first lists, then some spread evenly over all. What
/// comes first is a variant's default, and the best variants come first: they are fast, so they are timed well.
fn anchors(lengths: &[usize]) -> Vec<(usize, usize)> {
    let mut anchors: Vec<(usize, usize)> = spots(lengths).filter(|(_, at)| *at == 0).take(ANCHORS).collect();
    let total: usize = lengths.iter().sum();
    for nth in 0..ANCHORS {
        let spot = spots(lengths).nth((2 * nth + 1) * total / (2 * ANCHORS));
        if let Some(spot) = spot.filter(|spot| anchors.len() < ANCHORS && !anchors.contains(spot)) {
            anchors.push(spot);
        }
    }
    anchors
}

fn spots(lengths: &[usize]) -> impl Iterator<Item = (usize, usize)> + '_ {
    lengths.iter().enumerate().flat_map(|(list, length)| (0..*length).map(move |at| (list, at)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidate::SourceHash;
    use crate::candidates::variant::Priority;
    use crate::space::{Axis, Space};
    use std::collections::BTreeMap;

    #[test]
    fn every_candidate_is_in_one_share_the_anchors_are_in_all_and_shares_are_even() {
        for (lengths, of) in [(vec![256], 8), (vec![100, 1, 7, 30, 2], 3), (vec![3], 8), (vec![5, 5], 1), (vec![], 2)] {
            let mut times: BTreeMap<(usize, usize), u32> = BTreeMap::new();
            let mut sizes = Vec::new();
            for nth in 0..of {
                let own = Share { nth, of }.of_lists(&lengths);
                sizes.push(own.iter().map(Vec::len).sum::<usize>());
                let spots = own.iter().enumerate().flat_map(|(list, own)| own.iter().map(move |at| (list, *at)));
                spots.for_each(|spot| *times.entry(spot).or_default() += 1);
            }
            assert_eq!(times.len(), lengths.iter().sum::<usize>(), "{lengths:?}");
            let in_all = times.values().filter(|t| **t == of).count();
            assert!(times.values().all(|t| *t == 1 || *t == of));
            assert!(of == 1 || in_all == ANCHORS.min(times.len()), "{lengths:?}: {in_all}");
            assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1, "{sizes:?}");
        }
    }

    #[test]
    fn defaults_are_anchors_before_anyone_else() {
        assert_eq!(anchors(&[9, 0, 4, 2, 7, 5]), [(0, 0), (2, 0), (3, 0), (4, 0)]);
        assert_eq!(anchors(&[80]), [(0, 0), (0, 10), (0, 30), (0, 50)]);
        assert_eq!(anchors(&[2]), [(0, 0), (0, 1)]);
    }

    #[test]
    fn an_arm_keeps_its_order_and_one_that_is_not_listed_stays_whole() {
        let space = Space::single().axis(Axis::ints("i", 0..40));
        let arm = |name: &str| Arm::new(name, SourceHash::of(&[name]), Priority::High, space.clone());
        let listed = arm("a").keep((0..40).rev().collect());
        let share = Share { nth: 1, of: 4 }.of_arms(vec![listed, arm("whole")]);
        let own: Vec<u128> = (0..share[0].len()).filter_map(|n| share[0].nth(n)).collect();
        assert_eq!((own.len(), own[0], share[1].len()), (13, 39, 40));
        assert!(own.windows(2).all(|pair| pair[0] > pair[1]), "{own:?}");
        assert!(Share { nth: 0, of: 1 }.is_sound() && !Share { nth: 2, of: 2 }.is_sound());
        assert!(!Share { nth: 0, of: 0 }.is_sound() && !Share { nth: 0, of: MOST_SHARES + 1 }.is_sound());
    }
}
