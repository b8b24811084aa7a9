//! What was measured of one candidate, and how far it is behind the winner.

use serde::{Deserialize, Serialize};

use crate::records::resources::Resources;

/// What was measured of one candidate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Median time of one launch in microseconds.
    pub median_us: f64,
    /// Confidence interval of that median.
    pub ci_us: [f64; 2],
    /// Relative spread between rounds after the machine's common drift is taken out.
    pub sigma: f64,
    /// Rounds it took part in.
    pub rounds: u32,
    /// Launches per sample.
    pub batch: u32,
    /// The samples, one launch each in microseconds, in the order of the rounds.
    pub samples_us: Vec<f64>,
    /// What it was raced for, where that was not its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Box<Costs>>,
    /// How much slower it was than the winner, by the rounds both ran in or through others who raced with both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<Box<Behind>>,
    /// What the kernel takes of a multiprocessor, where its device tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Box<Resources>>,
}

/// What a candidate cost by an objective other than time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// The median, the lower the better.
    pub median: f64,
    /// Its confidence interval.
    pub ci: [f64; 2],
    /// Median joules of a launch, where they were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joules: Option<f64>,
}

impl Measurement {
    /// What it was raced for, the lower the better: the median time in microseconds, or the cost by another objective.
    pub fn raced_for(&self) -> f64 {
        self.cost.as_ref().map_or(self.median_us, |c| c.median)
    }
}

/// How much slower a candidate was than the winner: what is kept and shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Behind {
    /// The share (0.05 = 5 % slower); never below 0: who could not be told from the winner ties with it.
    pub by: f64,
    /// Its 95 % interval; the lower end is below 0 where the candidate may be the faster one.
    pub ci: [f64; 2],
}

impl Behind {
    /// Whether it may be the faster one: nothing more than a tie can be said.
    pub fn is_tie(&self) -> bool {
        self.ci[0] <= 0.0
    }

    /// Half the width of the interval.
    pub fn plus_minus(&self) -> f64 {
        (self.ci[1] - self.ci[0]) / 2.0
    }
}
