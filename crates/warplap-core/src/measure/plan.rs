//! What a race is asked to do, and who yields its samples.

use crate::rejection::Rejection;

/// What a sample costs by an objective other than time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// The lower the better.
    pub value: f64,
    /// Joules of one launch, where they were measured.
    pub joules: Option<f64>,
    /// Launches the sample took.
    pub launches: u64,
}

/// Who yields samples: seconds of one launch of a lane.
pub trait Stopwatch {
    /// Launches the lane and gives the seconds one launch took; an `Err` takes the lane out of the race for good.
    fn sample(&mut self, lane: usize) -> Result<f64, Rejection>;

    /// What the last sample costs, where the race is not run for time.
    fn cost(&mut self) -> Option<Cost> {
        None
    }

    /// Launches per sample.
    fn batch(&self, lane: usize) -> u32 {
        let _ = lane;
        1
    }

    /// Lets time pass between the confirm stage's blocks. A fake clock just advances; a watch that cannot wait may
    /// return at once, the confirm stage then sees fewer of the machine's moods.
    fn pause(&mut self, seconds: f64) {
        let _ = seconds;
    }
}

/// An incumbent leaves only for a gain whose lower confidence bound is above this share: a smaller one is not worth a
/// change of kernel, of artifact and of rounding behaviour under the user's feet.
pub const HYSTERESIS: f64 = 0.02;

/// Samples a winner has at least, for its interval.
pub(super) const WINNER_SAMPLES: usize = 5;

/// What a race is asked to do.
#[derive(Clone, Debug, PartialEq)]
pub struct RacePlan {
    /// Indifference: differences below this share do not matter.
    pub eps: f64,
    /// The allowed chance that the winner is not within `eps` of the best.
    pub delta: f64,
    /// The race is capped after this many rounds.
    pub max_rounds: u32,
    /// Whether near-equal finalists run again in blocks spread over time, for as long as the verdict is open.
    pub confirm: bool,
    /// Half the width of the leader's interval, as a share, above which its time is not known.
    pub known_within: f64,
    /// The least seconds a launch can take by ceilings that were measured. Whoever is faster shows that these were too
    /// low: the floor falls, and the race goes on.
    pub floor: Option<f64>,
    /// The least seconds by the device's data sheet, the floor where there is none; a sample below `IMPOSSIBLE_BELOW` of
    /// it is `Impossible`.
    pub least: Option<f64>,
    /// Lanes of libraries. Where one of them is faster than physics allows, it is the floor that is wrong: it falls.
    pub believed: Vec<usize>,
    /// The lane of the stored winner, where there is one.
    pub incumbent: Option<usize>,
    /// Decides the order within rounds.
    pub seed: u64,
}

impl Default for RacePlan {
    fn default() -> Self {
        RacePlan {
            eps: 0.01,
            delta: 0.01,
            max_rounds: 400,
            confirm: true,
            known_within: 0.05,
            floor: None,
            least: None,
            believed: Vec::new(),
            incumbent: None,
            seed: 0,
        }
    }
}

impl RacePlan {
    /// The plan with every number in its meaningful range: a plan is input, and input never panics.
    pub(super) fn sane(&self) -> RacePlan {
        let within = |v: f64, low: f64, high: f64, default: f64| if v.is_nan() { default } else { v.clamp(low, high) };
        let usual = RacePlan::default();
        RacePlan {
            eps: within(self.eps, 0.0, 1.0, usual.eps),
            delta: within(self.delta, 1e-9, 0.5, usual.delta),
            max_rounds: self.max_rounds.max(1),
            floor: self.floor.filter(|f| f.is_finite() && *f > 0.0),
            least: self.least.filter(|f| f.is_finite() && *f >= 0.0),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_senseless_plan_becomes_a_sane_one() {
        let plan = RacePlan { eps: f64::NAN, delta: -1.0, max_rounds: 0, floor: Some(f64::NAN), ..RacePlan::default() };
        let sane = plan.sane();
        assert_eq!((sane.eps, sane.delta, sane.max_rounds, sane.floor), (0.01, 1e-9, 1, None));
        assert_eq!(RacePlan::default().sane(), RacePlan::default());
    }
}
