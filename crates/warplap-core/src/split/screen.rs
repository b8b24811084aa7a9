//! Screening: what each card saw of its share comes in; who goes on to the finals goes out.
//!
//! Everyone's log-ratio to the anchors of its own card ranks it among all. It does no more than that: a ratio holds for
//! kernels bound by what the anchors are bound by, and is never taken for a time.

use std::collections::{BTreeMap, BTreeSet};

use super::GpuContest;
use crate::candidate::Candidate;
use crate::measure::Gap;

/// Who goes on to the finals.
pub const FINALISTS: usize = 12;

/// Everyone who was timed with its gap to the anchors, best first. Where no anchor was timed in every heat, the gap is to
/// the winner of the own heat.
pub fn ranked(contests: &[GpuContest]) -> Vec<(Candidate, Gap)> {
    let anchors = anchors(contests);
    let mut seen: BTreeMap<&Candidate, Vec<Gap>> = BTreeMap::new();
    for gpu_contest in contests {
        let gap_list = gpu_contest.gap_by_candidate();
        let own: Vec<Gap> = anchors.iter().filter_map(|anchor| gap_list.get(anchor).copied()).collect();
        let level = mean(&own).unwrap_or(Gap::NONE);
        gap_list.into_iter().for_each(|(candidate, gap)| seen.entry(candidate).or_default().push(gap.less(level)));
    }
    let means = seen.into_iter().filter_map(|(candidate, gap_list)| Some((candidate.clone(), mean(&gap_list)?)));
    let mut ranked: Vec<(Candidate, Gap)> = means.collect();
    ranked.sort_by(|a, b| a.1.ln.total_cmp(&b.1.ln).then_with(|| a.0.cmp(&b.0)));
    ranked
}

/// The best of all shares, best first. Who was found wrong on any card is out.
pub fn finalists(contests: &[GpuContest]) -> Vec<Candidate> {
    let trials = contests.iter().flat_map(|gpu_contest| &gpu_contest.trials);
    let wrong: BTreeSet<&Candidate> =
        trials.filter(|t| !t.is_right() && !t.is_unseen()).map(|t| &t.candidate).collect();
    let right = ranked(contests).into_iter().map(|(candidate, _)| candidate).filter(|c| !wrong.contains(c));
    right.take(FINALISTS).collect()
}

/// Those who were timed in every heat.
pub(super) fn anchors(contests: &[GpuContest]) -> Vec<&Candidate> {
    let Some((first, others)) = contests.split_first() else { return Vec::new() };
    let mut common: Vec<&Candidate> = first.gap_by_candidate().into_keys().collect();
    for gap_list in others.iter().map(GpuContest::gap_by_candidate) {
        common.retain(|c| gap_list.contains_key(c));
    }
    common.sort();
    common
}

/// The mean of gaps, with the error of a mean.
fn mean(gap_list: &[Gap]) -> Option<Gap> {
    let n = gap_list.len() as f64;
    let sum = gap_list.iter().copied().reduce(Gap::and)?;
    Some(Gap { ln: sum.ln / n, error: sum.error / n, ..sum })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::candidate::SourceHash;
    use crate::contest::verdict::Contender;
    use crate::measure::{Ended, Lane, Measurement, Placing, Race, RacePlan};
    use crate::rejection::Rejection;
    use crate::space::Config;

    pub(in super::super) fn contender(name: &str) -> Contender {
        let candidate = Candidate { variant: name.into(), config: Config::new(), source: SourceHash(String::new()) };
        Contender { candidate, error: 0.0, workspace: 0, priority: 0, incumbent: false }
    }

    /// What a card saw of these, by microseconds; nobody's time is in doubt by more than so much.
    pub(in super::super) fn gpu_contest(card: &str, times: &[(&str, f64)], error: f64) -> GpuContest {
        let best = times.iter().map(|t| t.1).fold(f64::INFINITY, f64::min);
        let lane = |us: f64| {
            let ci_us = [us * 0.99, us * 1.01];
            Lane::Measured(Measurement { median_us: us, ci_us, rounds: 20, ..Measurement::default() })
        };
        let place = |us: f64| Some(Placing { variance: error * error, ..Placing::sure((us / best).ln()) });
        let race = Race {
            contestants: times.iter().map(|t| lane(t.1)).collect(),
            leader: times.iter().position(|t| t.1 == best),
            ties: Vec::new(),
            runner_up: None,
            margin: None,
            places: times.iter().map(|t| place(t.1)).collect(),
            rounds: 20,
            launches: 20 * times.len() as u64,
            ended: Ended::ByRule,
            sigma: error,
            floor: None,
        };
        let contenders: Vec<Contender> = times.iter().map(|t| contender(t.0)).collect();
        GpuContest::of(card, &race, &contenders, &RacePlan::default()).unwrap()
    }

    fn names(of: &[Candidate]) -> Vec<&str> {
        of.iter().map(|c| c.variant.as_str()).collect()
    }

    #[test]
    fn shares_of_a_slow_and_a_fast_card_are_ranked_by_the_anchors_and_not_by_their_times() {
        // The second card is 1.3 times slower: by its times "d" would come last.
        let contests = [
            gpu_contest("a", &[("anchor", 100.0), ("b", 90.0), ("c", 95.0)], 1e-4),
            gpu_contest("b", &[("anchor", 130.0), ("d", 114.0), ("e", 140.0)], 1e-4),
        ];
        assert_eq!(names(&finalists(&contests)), ["d", "b", "c", "anchor", "e"]);
        let (best, gap) = &ranked(&contests)[0];
        assert!(best.variant == "d" && (gap.ln - (114.0f64 / 130.0).ln()).abs() < 1e-3, "{gap:?}");
    }

    #[test]
    fn twelve_go_on_and_nobody_who_was_wrong_anywhere() {
        let many: Vec<(String, f64)> = (0..30).map(|i| (format!("k{i:02}"), 100.0 + f64::from(i))).collect();
        let many: Vec<(&str, f64)> = many.iter().map(|(name, us)| (name.as_str(), *us)).collect();
        let mut contests = [gpu_contest("a", &many, 1e-4), gpu_contest("b", &[("k05", 60.0), ("z", 10.0)], 1e-4)];
        assert_eq!(
            finalists(&contests)[..3].iter().map(|c| c.variant.as_str()).collect::<Vec<_>>(),
            ["z", "k00", "k01"]
        );
        let wrong = Rejection::Crashed { reason: "test".into() };
        contests[1].trials[1].outcome = crate::candidate::Outcome::Rejected(wrong);
        let best = finalists(&contests);
        assert!(best.len() == FINALISTS && best[0].variant == "k00", "{best:?}");
    }

    #[test]
    fn without_an_anchor_the_best_of_each_share_go_on() {
        let contests = [
            gpu_contest("a", &[("b", 90.0), ("c", 99.0)], 1e-4),
            gpu_contest("b", &[("d", 500.0), ("e", 510.0)], 1e-4),
        ];
        assert_eq!(names(&finalists(&contests)), ["b", "d", "e", "c"]);
        assert!(finalists(&[]).is_empty());
    }
}
