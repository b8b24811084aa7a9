//! Why a candidate left: a closed list. A failed candidate is a result, not an error.

use serde::{Deserialize, Serialize};

use crate::records::measurement::Measurement;

/// Why a candidate left the race.
#[derive(Clone, Debug, PartialEq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "why")]
pub enum Rejection {
    /// The compiler, or the variant itself, refused the setting.
    #[error("does not build: {reason}")]
    DoesNotBuild {
        /// What the builder said.
        reason: String,
    },
    /// It needs more of something than the device has.
    #[error("over limits: {reason}")]
    OverLimits {
        /// Which limit, how much was asked and how much there is.
        reason: String,
    },
    /// The device refused the launch.
    #[error("launch failed: {reason}")]
    LaunchFailed {
        /// What the device said.
        reason: String,
    },
    /// It panicked, faulted or took its worker down.
    #[error("crashed: {reason}")]
    Crashed {
        /// The panic message or the signal.
        reason: String,
    },
    /// Its answer is not the right one.
    #[error("wrong answer: {reason} (error {error:.3e}, allowed {allowed:.3e})")]
    WrongAnswer {
        /// The largest error over the allowed one's scale; infinite for NaN and unwritten elements.
        #[serde(with = "finite")]
        error: f64,
        /// What was allowed there.
        #[serde(with = "finite")]
        allowed: f64,
        /// Where and what.
        reason: String,
    },
    /// It did not come back in time.
    #[error("{}", late(*seconds))]
    TimedOut {
        /// How long it had; nothing where the budget ended before its turn.
        seconds: f64,
    },
    /// Faster than physics, or no time at all: the measurement is broken, not the record.
    #[error("impossible: {reason}")]
    Impossible {
        /// The time seen, and the floor under it.
        reason: String,
    },
    /// Right, but surely slower than the leader.
    #[error("outpaced: {:.3} us after {} rounds", measurement.median_us, measurement.rounds)]
    Outpaced {
        /// What was measured until it left.
        measurement: Measurement,
    },
}

fn late(seconds: f64) -> String {
    match seconds {
        none if none < 0.001 => "its turn did not come before the budget ended".into(),
        some => format!("timed out after {some:.3} s"),
    }
}

impl Rejection {
    /// One word for tables and tallies.
    pub fn word(&self) -> &'static str {
        match self {
            Rejection::DoesNotBuild { .. } => "does_not_build",
            Rejection::OverLimits { .. } => "over_limits",
            Rejection::LaunchFailed { .. } => "launch_failed",
            Rejection::Crashed { .. } => "crashed",
            Rejection::WrongAnswer { .. } => "wrong_answer",
            Rejection::TimedOut { .. } => "timed_out",
            Rejection::Impossible { .. } => "impossible",
            Rejection::Outpaced { .. } => "outpaced",
        }
    }
}

/// JSON has no infinity: it is written as null and read back as infinity.
mod finite {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(value: &f64, s: S) -> Result<S::Ok, S::Error> {
        if value.is_finite() { s.serialize_f64(*value) } else { s.serialize_none() }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
        Ok(Option::<f64>::deserialize(d)?.unwrap_or(f64::INFINITY))
    }
}
