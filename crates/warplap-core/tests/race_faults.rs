//! The race against broken clocks, broken lanes and short budgets.

use std::cell::Cell;

use proptest::prelude::*;
use warplap_core::measure::{Ended, Lane, RacePlan, Stopwatch, race};
use warplap_core::rejection::Rejection;

/// A clock that is a list: what the n-th sample says, then honest times by lane.
struct Script<F: FnMut(usize, usize) -> Result<f64, Rejection>> {
    taken: usize,
    says: F,
}

impl<F: FnMut(usize, usize) -> Result<f64, Rejection>> Stopwatch for Script<F> {
    fn sample(&mut self, lane: usize) -> Result<f64, Rejection> {
        self.taken += 1;
        (self.says)(self.taken - 1, lane)
    }
}

const BROKEN: [f64; 8] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, -1e-3, 1e300, f64::MIN_POSITIVE];

fn honest(lane: usize, n: usize) -> f64 {
    1e-3 * (1.0 + 0.002 * lane as f64) * (1.0 + 1e-3 * (n * 7 % 5) as f64)
}

#[test]
fn a_broken_time_at_any_position_never_wins() {
    for broken in BROKEN {
        for position in 0..60 {
            let mut hit = None;
            let mut watch = Script {
                taken: 0,
                says: |n, lane| {
                    if n == position {
                        hit = Some(lane);
                    }
                    Ok(if n == position { broken } else { honest(lane, n) })
                },
            };
            let race = race(4, &mut watch, &RacePlan { seed: position as u64, ..RacePlan::default() }, &mut || false);
            let leader = race.leader.unwrap();
            if let Some(hit) = hit {
                assert_ne!(leader, hit, "{broken} at {position}");
                assert!(!race.ties.contains(&hit) && race.runner_up != Some(hit));
                assert!(matches!(race.contestants[hit], Lane::Rejected(Rejection::Impossible { .. })));
            }
            assert!(race.sigma.is_finite() && race.margin.is_none_or(f64::is_finite));
        }
    }
}

#[test]
fn a_lane_that_only_gives_broken_times_leaves_the_others_alone() {
    for broken in BROKEN {
        for bad in 0..3 {
            let mut watch = Script { taken: 0, says: |n, lane| Ok(if lane == bad { broken } else { honest(lane, n) }) };
            let race = race(3, &mut watch, &RacePlan::default(), &mut || false);
            assert!(race.leader.is_some_and(|l| l != bad), "{broken} in lane {bad}");
        }
    }
}

#[test]
fn faster_than_physics_is_impossible() {
    let says = |_, lane| Ok([1e-3, 0.85e-3, 0.95e-3, 1.2e-3][lane]);
    let plan = RacePlan { floor: Some(1e-3), ..RacePlan::default() };
    let race = race(4, &mut Script { taken: 0, says }, &plan, &mut || false);
    assert!(matches!(race.contestants[1], Lane::Rejected(Rejection::Impossible { .. })));
    assert_eq!(race.leader, Some(2), "ceilings are measured too: a tenth below the floor is allowed");
}

/// Simulated seconds a race takes under a budget, and the longest launch.
fn spent_under(budget: f64, times: &[f64]) -> (f64, f64, Option<usize>) {
    struct Clock<'a> {
        now: &'a Cell<f64>,
        times: &'a [f64],
        rng: fastrand::Rng,
    }
    impl Stopwatch for Clock<'_> {
        fn sample(&mut self, lane: usize) -> Result<f64, Rejection> {
            let seconds = self.times[lane] * (1.0 + 0.02 * self.rng.f64());
            self.now.set(self.now.get() + seconds);
            Ok(seconds)
        }
        fn pause(&mut self, seconds: f64) {
            self.now.set(self.now.get() + seconds);
        }
    }
    let now = Cell::new(0.0);
    let mut watch = Clock { now: &now, times, rng: fastrand::Rng::with_seed(5) };
    let race = race(times.len(), &mut watch, &RacePlan::default(), &mut || now.get() >= budget);
    (now.get(), 1.02 * times.iter().copied().fold(0.0, f64::max), race.leader)
}

#[test]
fn the_budget_is_kept_within_a_tenth_or_one_launch() {
    for budget in [1e-4, 0.05, 0.5, 2.0, 10.0] {
        for base in [1e-6, 1e-3, 2.0] {
            let times: Vec<f64> = (0..8).map(|i| base * (1.0 + 0.003 * f64::from(i))).collect();
            let (spent, launch, leader) = spent_under(budget, &times);
            // A pause is cut in slices of 10 ms.
            let slack = (0.1 * budget).max(launch).max(0.01);
            assert!(spent <= budget + slack, "{base} s lanes under {budget} s took {spent} s");
            assert!(leader.is_some());
        }
    }
}

#[test]
fn an_incumbent_is_sampled_first_and_known_when_the_budget_ends() {
    for seed in 0..20 {
        let mut asked = 0;
        let plan = RacePlan { incumbent: Some(2), seed, ..RacePlan::default() };
        let mut watch = Script { taken: 0, says: |n, lane| Ok(honest(lane, n)) };
        let race = race(4, &mut watch, &plan, &mut || {
            asked += 1;
            asked > 1
        });
        assert_eq!((race.leader, race.ended), (Some(2), Ended::Capped));
        assert!(
            race.contestants.iter().filter(|l| matches!(l, Lane::Rejected(Rejection::TimedOut { .. }))).count() == 3
        );
    }
}

fn any_sample() -> impl Strategy<Value = Option<f64>> {
    prop_oneof![
        6 => (1e-6f64..1e-2).prop_map(Some),
        6 => (1.0e-3f64..1.02e-3).prop_map(Some),
        1 => any::<f64>().prop_map(Some),
        1 => Just(None),
    ]
}

proptest! {
    #[test]
    fn no_sequence_of_samples_panics(
        contestants in 0usize..7,
        samples in proptest::collection::vec(any_sample(), 1..80),
        numbers in proptest::collection::vec(any::<f64>(), 3),
        odd_plan in any::<bool>(),
        max_rounds in 0u32..40,
        incumbent in proptest::option::of(0usize..9),
        seed in any::<u64>(),
        stop_after in 0usize..400,
    ) {
        let usual = RacePlan { max_rounds, incumbent, seed, ..RacePlan::default() };
        let plan = if odd_plan {
            RacePlan { eps: numbers[0], delta: numbers[1], floor: Some(numbers[2]), ..usual }
        } else {
            usual
        };
        // Past the script's end lanes are honest, so that late failures meet settled races.
        let says = |n: usize, lane: usize| match samples.get(n) {
            Some(Some(seconds)) => Ok(*seconds),
            Some(None) => Err(Rejection::Crashed { reason: "script".into() }),
            None => Ok(honest(lane, n)),
        };
        let mut asked = 0;
        let race = race(contestants, &mut Script { taken: 0, says }, &plan, &mut || {
            asked += 1;
            asked > stop_after
        });
        prop_assert_eq!(race.contestants.len(), contestants);
        let measured = race.contestants.iter().filter(|l| matches!(l, Lane::Measured(_))).count();
        prop_assert_eq!(race.leader.is_some(), measured > 0);
        if let Some(leader) = race.leader {
            prop_assert!(matches!(race.contestants[leader], Lane::Measured(_)));
            prop_assert!(!race.ties.contains(&leader));
        }
        for lane in race.contestants.iter().chain(race.ties.iter().map(|&t| &race.contestants[t])) {
            if let Lane::Measured(m) = lane {
                prop_assert!(m.median_us.is_finite() && m.median_us > 0.0);
                prop_assert!(m.ci_us[0] <= m.median_us && m.median_us <= m.ci_us[1]);
                prop_assert!(!m.samples_us.is_empty() && m.samples_us.len() <= 400);
            }
        }
    }
}
