//! The score sheet of a race: every sample passes its door, is judged, and is written down.

use super::plan::{RacePlan, Stopwatch};
use super::stats::{median, median_interval};
use super::{Cost, Costs, Lane, Measurement};
use crate::model::roofline::IMPOSSIBLE_BELOW;
use crate::rejection::Rejection;

/// Seconds no launch can be shorter than (a thousandth of a clock cycle) or longer than (eleven days).
const SENSIBLE: std::ops::Range<f64> = 1e-12..1e6;

/// Seconds of a pause between two questions whether to stop.
const PAUSE_SLICE: f64 = 0.01;

/// Samples kept per lane.
const KEPT: usize = 400;

/// Whether a lane is in the race.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum LaneState {
    /// It runs in the next round.
    Live,
    /// Surely slower than the lane `by`.
    Outpaced {
        /// Who led.
        by: usize,
    },
    /// Out for good.
    Failed(Rejection),
}

/// The samples of all lanes and who is still running.
pub(super) struct Sheet<'a> {
    watch: &'a mut dyn Stopwatch,
    stop: &'a mut dyn FnMut() -> bool,
    /// Seconds no honest launch can be below, as far as is known.
    pub(super) floor: Option<f64>,
    least: Option<f64>,
    believed: &'a [usize],
    pub(super) places: Vec<LaneState>,
    /// ln seconds, or ln of the cost by another objective, by lane and round of the race proper.
    pub(super) rounds: Vec<Vec<f64>>,
    /// All samples of a lane, as in `rounds`: the race's, the confirm stage's and the top-up.
    all: Vec<Vec<f64>>,
    /// ln seconds and cost of the same samples, where the race is not run for time.
    costs: Vec<Vec<(f64, Cost)>>,
    /// The last pooled robust sigma between rounds of two lanes or more.
    pub(super) sigma: Option<f64>,
    /// The last robust sigma of each lane between rounds.
    pub(super) spread: Vec<Option<f64>>,
    pub(super) launches: u64,
    /// Seconds measured so far.
    pub(super) spent: f64,
    pub(super) stopped: bool,
}

impl<'a> Sheet<'a> {
    pub(super) fn new(
        contestants: usize,
        watch: &'a mut dyn Stopwatch,
        stop: &'a mut dyn FnMut() -> bool,
        plan: &'a RacePlan,
    ) -> Self {
        Sheet {
            watch,
            stop,
            floor: plan.floor,
            least: plan.least.or(plan.floor),
            believed: &plan.believed,
            places: vec![LaneState::Live; contestants],
            rounds: vec![Vec::new(); contestants],
            all: vec![Vec::new(); contestants],
            costs: vec![Vec::new(); contestants],
            sigma: None,
            spread: vec![None; contestants],
            launches: 0,
            spent: 0.0,
            stopped: false,
        }
    }

    /// The lanes in the race, in order.
    pub(super) fn live(&self) -> Vec<usize> {
        (0..self.places.len()).filter(|&l| self.places[l] == LaneState::Live).collect()
    }

    /// Whether the lane is out for good.
    pub(super) fn failed(&self, lane: usize) -> bool {
        matches!(self.places[lane], LaneState::Failed(_))
    }

    /// How many samples the lane has.
    pub(super) fn count(&self, lane: usize) -> usize {
        self.all[lane].len()
    }

    /// Launches one sample's worth.
    pub(super) fn batch(&self, lane: usize) -> u32 {
        self.watch.batch(lane).max(1)
    }

    /// One sample of a lane, as in `rounds`; `None` when the lane failed or the race was stopped.
    pub(super) fn take(&mut self, lane: usize) -> Option<f64> {
        if self.stopped || (self.stop)() {
            self.stopped = true;
            return None;
        }
        let batch = self.batch(lane);
        let judged = self.watch.sample(lane).and_then(|seconds| self.judge(lane, seconds));
        let cost = self.watch.cost();
        let launches = cost.map_or(u64::from(batch), |c| c.launches);
        self.launches += launches;
        match judged {
            Ok(seconds) => {
                self.spent += seconds * launches as f64;
                let x = cost.map_or(seconds, |c| c.value).ln();
                self.costs[lane].extend(cost.map(|c| (seconds.ln(), c)));
                self.all[lane].push(x);
                Some(x)
            }
            Err(rejection) => {
                self.places[lane] = LaneState::Failed(rejection);
                None
            }
        }
    }

    fn judge(&mut self, lane: usize, seconds: f64) -> Result<f64, Rejection> {
        // NaN is in no range.
        if !SENSIBLE.contains(&seconds) {
            return Err(Rejection::Impossible { reason: format!("the clock said {seconds:e} s for one launch") });
        }
        let Some(floor) = self.floor.filter(|floor| seconds < IMPOSSIBLE_BELOW * floor) else { return Ok(seconds) };
        // Libraries are believed below a data sheet, too: it is the sheet that is wrong.
        let least = self.least.map(|least| least.min(floor)).filter(|_| !self.believed.contains(&lane));
        match least.filter(|least| seconds < IMPOSSIBLE_BELOW * least) {
            Some(least) => Err(Rejection::Impossible {
                reason: format!("{:.3} us where physics asks for {:.3} us", seconds * 1e6, least * 1e6),
            }),
            None => {
                self.floor = Some(seconds / IMPOSSIBLE_BELOW);
                Ok(seconds)
            }
        }
    }

    /// Whether another sample of the lane takes longer than a doubt is worth.
    pub(super) fn is_slow(&self, lane: usize, seconds: f64) -> bool {
        let launches = f64::from(self.batch(lane));
        let last = self.costs[lane].last().map(|(x, cost)| x.exp() * cost.launches as f64);
        last.or_else(|| Some(self.all[lane].last()?.exp() * launches)).is_some_and(|s| s > seconds)
    }

    /// Lets time pass, in slices short enough to be stopped in.
    pub(super) fn pause(&mut self, seconds: f64) {
        let slices = (seconds / PAUSE_SLICE).round().max(1.0) as u32;
        for _ in 0..slices {
            self.stopped = self.stopped || (self.stop)();
            if self.stopped {
                return;
            }
            self.watch.pause(seconds / f64::from(slices));
        }
    }

    /// Whether a lane left for the sake of one that has failed since: it is owed another race.
    pub(super) fn owes(&self) -> bool {
        self.places.iter().any(|p| matches!(p, LaneState::Outpaced { by } if self.failed(*by)))
    }

    /// Everyone who did not fail runs again from the first round.
    pub(super) fn revive(&mut self) {
        for lane in 0..self.places.len() {
            self.rounds[lane].clear();
            if matches!(self.places[lane], LaneState::Outpaced { .. }) {
                self.places[lane] = LaneState::Live;
            }
        }
    }

    /// What became of a lane, in the words of the record.
    pub(super) fn outcome(&self, lane: usize, sigma: f64) -> Lane {
        match &self.places[lane] {
            LaneState::Failed(rejection) => Lane::Rejected(rejection.clone()),
            _ if self.all[lane].is_empty() => Lane::Rejected(Rejection::TimedOut { seconds: 0.0 }),
            LaneState::Live => Lane::Measured(self.measurement(lane, sigma)),
            LaneState::Outpaced { .. } => {
                Lane::Rejected(Rejection::Outpaced { measurement: self.measurement(lane, sigma) })
            }
        }
    }

    /// What was measured of one lane alone; `sigma` is the race's, for lanes with too few samples of their own.
    fn measurement(&self, lane: usize, sigma: f64) -> Measurement {
        let raced = &self.all[lane];
        let times: Vec<f64> = self.costs[lane].iter().map(|c| c.0).collect();
        let cost = (!times.is_empty()).then(|| {
            let mut joules: Vec<f64> = self.costs[lane].iter().filter_map(|c| c.1.joules).collect();
            joules.sort_by(f64::total_cmp);
            let joules = joules.get(joules.len() / 2).copied();
            let (median, ci) = (median(raced).exp(), median_interval(raced, sigma).map(f64::exp));
            Box::new(Costs { median, ci, joules })
        });
        let logs = if times.is_empty() { raced } else { &times };
        let us = |x: f64| x.exp() * 1e6;
        Measurement {
            median_us: us(median(logs)),
            ci_us: median_interval(logs, sigma).map(us),
            sigma: self.spread[lane].unwrap_or(sigma),
            rounds: u32::try_from(logs.len()).unwrap_or(u32::MAX),
            batch: self.batch(lane),
            samples_us: logs.iter().take(KEPT).map(|&x| us(x)).collect(),
            cost,
            behind: None,
            resources: None,
        }
    }

    /// Whether a lane in the race was sampled before the last revival only.
    pub(super) fn forgets(&self) -> bool {
        self.live().into_iter().any(|l| self.rounds[l].is_empty() && !self.all[l].is_empty())
    }

    /// Every sampled lane's distance in ln seconds to the fastest by plain medians: the evidence of last resort.
    pub(super) fn plain_gaps(&self) -> Vec<Option<f64>> {
        let centres: Vec<Option<f64>> = (0..self.all.len())
            .map(|l| (!self.failed(l) && !self.all[l].is_empty()).then(|| median(&self.all[l])))
            .collect();
        let best = centres.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        centres.into_iter().map(|c| c.map(|c| c - best)).collect()
    }

    /// Half the width of the interval of a lane's median, as a share of it.
    pub(super) fn half_width(&self, lane: usize, sigma: f64) -> f64 {
        let logs: Vec<f64> = match self.costs[lane].is_empty() {
            true => self.all[lane].clone(),
            false => self.costs[lane].iter().map(|c| c.0).collect(),
        };
        let [low, high] = median_interval(&logs, sigma).map(|x| (x - median(&logs)).exp());
        (high - low) / 2.0
    }

    /// ln of how much slower `lane` was than `leader`, round by round of those both ran in.
    pub(super) fn paired(&self, lane: usize, leader: usize) -> Vec<f64> {
        self.rounds[lane].iter().zip(&self.rounds[leader]).map(|(a, b)| a - b).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Table(Vec<f64>);

    impl Stopwatch for Table {
        fn sample(&mut self, lane: usize) -> Result<f64, Rejection> {
            Ok(self.0[lane])
        }
    }

    #[test]
    fn what_no_clock_can_say_is_impossible() {
        let times = [0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, 1e-300, 8.9e-4];
        let (mut watch, mut stop) = (Table(times.to_vec()), || false);
        let plan = RacePlan { floor: Some(1e-3), ..RacePlan::default() };
        let mut sheet = Sheet::new(times.len(), &mut watch, &mut stop, &plan);
        for (lane, time) in times.into_iter().enumerate() {
            assert_eq!(sheet.take(lane), None);
            assert!(matches!(sheet.outcome(lane, 0.01), Lane::Rejected(Rejection::Impossible { .. })), "{time}");
        }
    }

    #[test]
    fn a_floor_that_a_library_is_below_was_none() {
        let (mut watch, mut stop) = (Table(vec![8e-4, 7.1e-4, 8e-4, f64::NAN]), || false);
        let plan = RacePlan { floor: Some(1e-3), believed: vec![1, 3], ..RacePlan::default() };
        let mut sheet = Sheet::new(4, &mut watch, &mut stop, &plan);
        assert_eq!(sheet.take(0), None, "nobody has shown yet that this can be");
        assert!(sheet.take(1).is_some() && sheet.take(2).is_some());
        assert_eq!(sheet.take(3), None, "no clock says that, whoever runs");
        assert!((sheet.floor.unwrap() - 7.1e-4 / IMPOSSIBLE_BELOW).abs() < 1e-9);
    }

    #[test]
    fn a_floor_that_was_measured_falls_before_anybody_right_and_stands_at_the_data_sheet() {
        let (mut watch, mut stop) = (Table(vec![5e-4, 8e-4, 1.7e-4]), || false);
        let plan = RacePlan { floor: Some(1e-3), least: Some(2e-4), ..RacePlan::default() };
        let mut sheet = Sheet::new(3, &mut watch, &mut stop, &plan);
        assert!(sheet.take(0).is_some() && sheet.take(1).is_some());
        assert!((sheet.floor.unwrap() - 5e-4 / IMPOSSIBLE_BELOW).abs() < 1e-9);
        assert_eq!(sheet.take(2), None);
        assert!(matches!(sheet.outcome(2, 0.01), Lane::Rejected(Rejection::Impossible { .. })));
    }

    #[test]
    fn a_pause_can_be_stopped_in() {
        let mut watch = Table(Vec::new());
        let mut asked = 0;
        let mut stop = || {
            asked += 1;
            asked > 3
        };
        let plan = RacePlan::default();
        let mut sheet = Sheet::new(0, &mut watch, &mut stop, &plan);
        sheet.pause(1.0);
        assert!(sheet.stopped);
        assert_eq!(asked, 4);
    }
}
