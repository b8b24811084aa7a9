//! Measuring: laps come in, a race runs, Measurements go out.

mod confirm;
mod heat;
mod plan;
mod race;
mod sheet;
mod standing;
mod stats;
mod student;

pub use plan::{HYSTERESIS, RacePlan, Stopwatch};
pub use race::{Ended, Lane, Race, race};

use serde::{Deserialize, Serialize};

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
}
