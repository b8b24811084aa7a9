//! The race: lanes and a stopwatch come in; who leads, who ties and what was measured of each go out.
//!
//! # The statistics, in short
//!
//! Every *round* samples each live lane once, in a fresh random order (a randomised complete block), and only lanes of
//! the same round are compared. With x = ln t, a round's samples less their median, u = x - med x, are free of
//! whatever the clock, a tenant or drift did to all lanes at that moment. A lane's centre is the median of its u plus
//! the mean of the residuals clipped at 2.5 sigma; its variance leans on the pooled robust sigma (never below 0.3 %)
//! with the weight of four samples. The gap of a lane to the leader then has the standard error
//! 1.1 sqrt((s_i² + s_j²)/n) and a Student-t quantile whose error `delta` is shared between all looks (counted by
//! doublings of n, each with delta/(k(k+1))) and at each between the live lanes, so the race may look after every
//! round.
//!
//! - After the first launch a lane leaves if it took over 3 times the best and over 50 ms.
//! - After two rounds it leaves if both its samples are over 1.6 times both of the leader's; after three, if all are
//!   over 1.25 times all of them.
//! - From four rounds on it leaves when the lower bound of its gap is above zero (the incumbent: above 2 %).
//! - The race ends by its rule when one lane is left, or when the others' chances to be ahead of the leader by more
//!   than `eps` (the Student-t tails of gap + eps) add up to no more than delta/5.
//!
//! What this promises, and what it does not: the stop spends `delta` over five doublings, 4 to 127 rounds, with the
//! looks within a doubling counted as one; leaving spends another `delta` on "slower at all", hence far less on "ahead
//! by more than eps". It is a design, not a proof: the noise worlds in `tests/` hold it to its word.
//!
//! Then the near-equal finalists are confirmed in blocks spread over time (see `confirm`): a race is over in
//! milliseconds and sees the machine in one mood only. As long as the verdict is open, blocks go on until `stop`.

use super::confirm::confirm;
use super::gap::Gap;
use super::place::{Placing, at, leader_of};
use super::plan::{RacePlan, Stopwatch, WINNER_SAMPLES};
use super::rounds::{Ended, RoundsOutcome, bar, run_rounds};
use super::sheet::{LaneState, Sheet};

/// What became of a lane: measured to the end, or rejected (`Outpaced` carries the measurement so far).
pub type Lane = crate::candidate::Outcome;

/// What came out of a race.
#[derive(Clone, Debug, PartialEq)]
pub struct Race {
    /// What became of each lane.
    pub contestants: Vec<Lane>,
    /// The fastest lane by the evidence; `None` when every lane failed or nothing was sampled.
    pub leader: Option<usize>,
    /// Lanes that cannot be told from the leader, nearest first. The incumbent is among them while the gain over it is
    /// not surely above the hysteresis.
    pub ties: Vec<usize>,
    /// The second fastest.
    pub runner_up: Option<usize>,
    /// How much slower the second fastest was (0.05 = 5 %).
    pub margin: Option<f64>,
    /// Where each lane stands behind the leader, where it can be said.
    pub places: Vec<Option<Placing>>,
    /// Rounds run, the confirm stage's included.
    pub rounds: u32,
    /// Launches timed, over all lanes.
    pub launches: u64,
    /// How it ended.
    pub ended: Ended,
    /// Pooled relative spread between rounds, the machine's common drift taken out.
    pub sigma: f64,
    /// The floor it was judged against at the end, in seconds.
    pub floor: Option<f64>,
}

impl Race {
    /// How far a lane is behind another, where both were timed.
    pub fn gap(&self, lane: usize, other: usize) -> Option<Gap> {
        let place = |lane: usize| self.places.get(lane).copied().flatten();
        Some(place(lane)?.behind(&place(other)?))
    }
}

/// Races `lanes` lanes against each other. `stop` is asked before every sample; once it says true the race ends
/// `Capped` with what is there.
pub fn race(contestants: usize, watch: &mut dyn Stopwatch, plan: &RacePlan, stop: &mut dyn FnMut() -> bool) -> Race {
    let plan = plan.sane();
    let mut rng = fastrand::Rng::with_seed(plan.seed);
    let mut sheet = Sheet::new(contestants, watch, stop, &plan);
    let mut rounds = 0;
    loop {
        let mut contest = run_rounds(&mut sheet, &plan, &mut rng);
        rounds += contest.rounds;
        let mut places = contest.places(&sheet);
        if let Some(leader) = leader_of(&sheet, &places) {
            top_up(&mut sheet, leader);
        }
        if plan.confirm && contest.ended == Ended::ByRule && !sheet.owes() && !sheet.stopped {
            let confirmed = confirm(&mut sheet, &plan, &mut places, contest.sigma, &mut rng);
            rounds += confirmed.rounds;
            contest.ended = if confirmed.unsure { Ended::Capped } else { Ended::ByRule };
        } else if sheet.stopped {
            contest.ended = Ended::Capped;
        }
        if sheet.owes() {
            sheet.revive();
            if !sheet.stopped {
                // Every such turn costs a lane, so there is an end to them.
                continue;
            }
        }
        if sheet.forgets() {
            // Stopped before the second race had seen everyone: nobody can be told from anybody, but someone leads.
            let unsure = |at: f64| Placing { variance: 1.0, reach: f64::INFINITY, ..Placing::sure(at) };
            places = sheet.plain_gaps().into_iter().map(|g| g.map(unsure)).collect();
        }
        return finish(&sheet, &plan, places, rounds, contest);
    }
}

/// Samples the winner until its interval has something to stand on.
fn top_up(sheet: &mut Sheet<'_>, leader: usize) {
    while sheet.count(leader) < WINNER_SAMPLES {
        if sheet.take(leader).is_none() {
            break;
        }
    }
}

fn finish(
    sheet: &Sheet<'_>,
    plan: &RacePlan,
    mut places: Vec<Option<Placing>>,
    rounds: u32,
    contest: RoundsOutcome,
) -> Race {
    for (lane, slot) in places.iter_mut().enumerate() {
        if sheet.failed(lane) {
            *slot = None;
        }
    }
    let leader = leader_of(sheet, &places);
    let base = leader.map_or(0.0, |l| at(&places, l));
    places.iter_mut().flatten().for_each(|place| place.at -= base);
    let mut others: Vec<usize> = (0..places.len()).filter(|&l| places[l].is_some() && Some(l) != leader).collect();
    others.sort_by(|&a, &b| at(&places, a).total_cmp(&at(&places, b)));
    let tied =
        |&l: &usize| sheet.places[l] == LaneState::Live && places[l].is_some_and(|p| p.at - p.reach <= bar(l, plan));
    let runner_up = leader.and(others.first().copied());
    Race {
        contestants: (0..places.len()).map(|l| sheet.outcome(l, contest.sigma)).collect(),
        leader,
        ties: others.iter().copied().filter(tied).collect(),
        runner_up,
        margin: runner_up.map(|l| at(&places, l).exp_m1()),
        places,
        rounds,
        launches: sheet.launches,
        ended: contest.ended,
        sigma: contest.sigma,
        floor: sheet.floor,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rejection::Rejection;

    /// A device whose clock is a table: seconds by lane, and after how many samples a lane starts to fail.
    struct Table {
        seconds: Vec<f64>,
        fails_after: Vec<u32>,
        taken: Vec<u32>,
        rng: fastrand::Rng,
    }

    fn table(seconds: &[f64]) -> Table {
        let n = seconds.len();
        Table {
            seconds: seconds.to_vec(),
            fails_after: vec![u32::MAX; n],
            taken: vec![0; n],
            rng: fastrand::Rng::with_seed(1),
        }
    }

    impl Stopwatch for Table {
        fn sample(&mut self, lane: usize) -> Result<f64, Rejection> {
            self.taken[lane] += 1;
            if self.taken[lane] > self.fails_after[lane] {
                return Err(Rejection::LaunchFailed { reason: "table".into() });
            }
            Ok(self.seconds[lane] * (1.0 + 0.005 * (self.rng.f64() - 0.5)))
        }
    }

    fn run(watch: &mut Table, plan: RacePlan) -> Race {
        race(watch.seconds.len(), watch, &plan, &mut || false)
    }

    #[test]
    fn the_fastest_leads_and_the_margin_is_to_the_second() {
        let race = run(&mut table(&[2e-3, 1e-3, 1.1e-3]), RacePlan::default());
        assert_eq!((race.leader, race.runner_up, race.ended), (Some(1), Some(2), Ended::ByRule));
        assert!((race.margin.unwrap() - 0.1).abs() < 0.01);
        assert!(race.ties.is_empty());
        assert!(
            matches!(&race.contestants[0], Lane::Rejected(Rejection::Outpaced { measurement }) if measurement.rounds == 2)
        );
    }

    #[test]
    fn a_far_slower_lane_costs_one_launch() {
        let mut watch = table(&[1e-3, 0.5]);
        run(&mut watch, RacePlan::default());
        assert_eq!(watch.taken[1], 1);
    }

    #[test]
    fn one_lane_needs_a_handful_of_samples() {
        let race = run(&mut table(&[1e-3]), RacePlan::default());
        assert_eq!((race.leader, race.ended, race.launches), (Some(0), Ended::ByRule, 5));
        let Lane::Measured(m) = &race.contestants[0] else { panic!("{:?}", race.contestants) };
        assert!(m.ci_us[0] < m.median_us && m.median_us < m.ci_us[1] && m.samples_us.len() == 5);
    }

    #[test]
    fn equal_lanes_tie() {
        let race = run(&mut table(&[1e-3, 1e-3, 4e-3]), RacePlan::default());
        assert_eq!(race.ties.len(), 1);
        assert!(race.margin.unwrap() < 0.01);
    }

    #[test]
    fn an_incumbent_is_among_the_ties_until_the_gain_is_worth_it() {
        let plan = RacePlan { incumbent: Some(0), ..RacePlan::default() };
        assert_eq!(run(&mut table(&[1.015e-3, 1e-3]), plan.clone()).ties, [0]);
        assert!(run(&mut table(&[1.05e-3, 1e-3]), plan).ties.is_empty());
        assert!(run(&mut table(&[1.015e-3, 1e-3]), RacePlan::default()).ties.is_empty());
    }

    /// The table's seconds, with joules beside them.
    struct Costly(Table, Vec<f64>, usize);

    impl Stopwatch for Costly {
        fn sample(&mut self, lane: usize) -> Result<f64, Rejection> {
            self.2 = lane;
            self.0.sample(lane)
        }

        fn cost(&mut self) -> Option<crate::measure::Cost> {
            let joules = self.1[self.2] * (1.0 + 0.005 * (self.0.rng.f64() - 0.5));
            Some(crate::measure::Cost { value: joules, joules: Some(joules), launches: 100 })
        }
    }

    #[test]
    fn a_race_for_something_else_than_time_is_led_by_the_cheapest_and_keeps_the_times() {
        let mut watch = Costly(table(&[1e-3, 1.3e-3, 1e-4]), vec![0.5, 0.4, 9.0], 0);
        let race = race(3, &mut watch, &RacePlan { floor: Some(1e-4), ..RacePlan::default() }, &mut || false);
        assert_eq!((race.leader, race.runner_up), (Some(1), Some(0)));
        assert!((race.margin.unwrap() - 0.25).abs() < 0.01 && race.launches.is_multiple_of(100));
        let Lane::Measured(m) = &race.contestants[1] else { panic!("{:?}", race.contestants) };
        assert!((m.median_us / 1300.0 - 1.0).abs() < 0.01 && (m.raced_for() - 0.4).abs() < 0.01);
        assert!((m.cost.as_ref().unwrap().joules.unwrap() - 0.4).abs() < 0.01);
        // Far behind by cost: a second sample is enough.
        assert_eq!(watch.0.taken[2], 2);
    }

    #[test]
    fn when_nobody_can_run_nobody_leads() {
        let mut watch = table(&[1e-3, 2e-3]);
        watch.fails_after = vec![0, 0];
        let race = run(&mut watch, RacePlan::default());
        assert_eq!((race.leader, race.runner_up, race.ties.len()), (None, None, 0));
        assert_eq!(run(&mut table(&[]), RacePlan::default()).leader, None);
    }

    #[test]
    fn those_who_left_for_a_lane_that_fails_later_race_again() {
        for fails_after in 1..20 {
            let mut watch = table(&[1e-3, 1.5e-3, 1.6e-3]);
            watch.fails_after[0] = fails_after;
            let race = run(&mut watch, RacePlan::default());
            let lead = if watch.taken[0] > fails_after { 1 } else { 0 };
            assert_eq!(race.leader, Some(lead), "failing after {fails_after}");
        }
    }

    #[test]
    fn a_race_stopped_at_once_says_so_of_every_lane() {
        let race = race(2, &mut table(&[1e-3, 1e-3]), &RacePlan::default(), &mut || true);
        assert_eq!((race.leader, race.ended, race.launches), (None, Ended::Capped, 0));
        assert!(race.contestants.iter().all(|l| matches!(l, Lane::Rejected(Rejection::TimedOut { .. }))));
    }

    #[test]
    fn a_race_stopped_anywhere_has_the_best_evidence_in_front() {
        for samples in 1..20 {
            let mut left = samples;
            let mut watch = table(&[3e-3, 1e-3, 1.2e-3]);
            let race = race(3, &mut watch, &RacePlan { confirm: false, ..RacePlan::default() }, &mut || {
                left -= 1;
                left < 0
            });
            let best = [1, 2, 0].into_iter().find(|&l| watch.taken[l] > 0);
            assert_eq!(race.leader, best, "after {samples} samples");
        }
    }
}
