//! Measuring: laps come in, a race runs, Measurements go out.

mod confirm;
pub(crate) mod contestants;
mod energy;
mod gap;
mod place;
mod plan;
mod race;
mod rounds;
mod sheet;
mod standing;
mod stats;
mod student;
pub mod timing;

pub(crate) use energy::{Drawn, Meter, between_ticks};
pub use gap::Gap;
pub use place::Placing;
pub use plan::{Cost, HYSTERESIS, RacePlan, Stopwatch};
pub use race::{Lane, Race, race};
pub use rounds::Ended;
pub(crate) use stats::{clip_mean, median, pooled_sigma};

pub use crate::records::measurement::{Behind, Costs, Measurement};
use serde::{Deserialize, Serialize};

/// The way races are run, a part of every soft fingerprint. A release that leaves it as it is leaves the records of its
/// users as they are: kernels are known by their own code. Whoever changes what is measured, or how, counts it up.
pub const RACE: &str = "1";

/// What samples of one kernel alone show: seconds of one launch each. Those that are no time at all do not count.
pub fn summarize(seconds: &[f64], batch: u32) -> Measurement {
    let times = seconds.iter().copied().filter(|s| s.is_finite() && *s > 0.0);
    let logs: Vec<f64> = times.map(f64::ln).collect();
    if logs.is_empty() {
        return Measurement { batch, ..Measurement::default() };
    }
    let us = |x: f64| x.exp() * 1e6;
    let sigma = stats::pooled_sigma(std::slice::from_ref(&logs));
    Measurement {
        median_us: us(stats::median(&logs)),
        ci_us: stats::median_interval(&logs, sigma).map(us),
        sigma,
        rounds: u32::try_from(logs.len()).unwrap_or(u32::MAX),
        batch,
        samples_us: logs.into_iter().map(us).collect(),
        cost: None,
        behind: None,
        resources: None,
    }
}

/// Whether launches are timed one by one through the driver or as a captured graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Queueing {
    /// As a program calls it.
    #[default]
    Stream,
    /// As a captured graph replays it.
    Graph,
}

/// What is in the cache when a launch starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheState {
    /// Its inputs, as the last launch left them.
    #[default]
    Hot,
    /// Other data.
    Cold,
}

impl CacheState {
    /// Its name in keys.
    pub const fn name(self) -> &'static str {
        match self {
            CacheState::Hot => "hot",
            CacheState::Cold => "cold",
        }
    }
}

impl std::str::FromStr for CacheState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = [CacheState::Hot, CacheState::Cold].into_iter().find(|cache| cache.name() == text);
        known.ok_or_else(|| format!("'{text}' is not known, expected hot or cold"))
    }
}

/// What stands in front of a timed launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// Other work, as in a program; its time is taken off.
    #[default]
    Use,
    /// The launch before: itself, which a kernel that may begin early overlaps with.
    BackToBack,
}

impl Clock {
    /// Its name in keys and on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Clock::Use => "use",
            Clock::BackToBack => "back-to-back",
        }
    }
}

impl std::str::FromStr for Clock {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = [Clock::Use, Clock::BackToBack].into_iter().find(|clock| clock.name() == text);
        known.ok_or_else(|| format!("'{text}' is not known, expected use or back-to-back"))
    }
}

/// How candidates are measured. It is part of the Key: the best kernel may differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Policy {
    /// One by one, or as a graph.
    pub queueing: Queueing,
    /// Hot or cold.
    pub cache: CacheState,
    /// Behind other work, or back to back.
    #[serde(default)]
    pub clock: Clock,
}

impl std::fmt::Display for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let queueing = match self.queueing {
            Queueing::Stream => "stream",
            Queueing::Graph => "graph",
        };
        write!(f, "queue={queueing},cache={},clock={}", self.cache.name(), self.clock.name())
    }
}

impl std::str::FromStr for Policy {
    type Err = String;

    /// Reads a policy as it writes itself.
    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Queueing::Stream, Queueing::Graph].into_iter().flat_map(|queueing| {
            [CacheState::Hot, CacheState::Cold].into_iter().flat_map(move |cache| {
                [Clock::Use, Clock::BackToBack].into_iter().map(move |clock| Policy { queueing, cache, clock })
            })
        });
        let mut written = all.filter(|policy| policy.to_string() == text);
        written.next().ok_or_else(|| "expected queue=stream|graph,cache=hot|cold,clock=use|back-to-back".into())
    }
}

/// One kernel ready to be timed on a device's clock.
pub trait Lap {
    /// Times one sample and gives the seconds of one launch.
    fn run(&mut self) -> Result<f64, crate::rejection::Rejection>;

    /// As [`Lap::run`], with nothing but the launches themselves on the device: for counters that see all it does.
    fn back_to_back(&mut self) -> Result<f64, crate::rejection::Rejection> {
        self.run()
    }

    /// Whether what was timed is what it takes: asked of a winner before it is proved again.
    fn settle(&mut self) -> Result<(), crate::rejection::Rejection> {
        Ok(())
    }

    /// Whether outputs hold, after [`Lap::settle`], what the last launch made of the inputs as they are then.
    fn leaves_answers(&self) -> bool {
        false
    }

    /// One launch or two in a row on memory as it is, with nothing between them: how many there were. Asked where a
    /// kernel changes arguments in place and [`Lap::leaves_answers`].
    fn repeat(&mut self) -> Result<u32, crate::rejection::Rejection> {
        Ok(0)
    }

    /// Launches per sample.
    fn batch(&self) -> u32;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_says_its_clock_and_one_written_before_there_were_two_still_reads() {
        let message = Policy { clock: Clock::BackToBack, ..Policy::default() };
        assert_eq!(message.to_string(), "queue=stream,cache=hot,clock=back-to-back");
        assert_eq!(Policy::default().to_string(), "queue=stream,cache=hot,clock=use");
        let old: Policy = serde_json::from_str(r#"{"queueing":"graph","cache":"cold"}"#).unwrap();
        assert_eq!((old.cache, old.clock), (CacheState::Cold, Clock::Use));
        let written = serde_json::to_string(&message).unwrap();
        assert!(
            written.contains(r#""clock":"back-to-back""#)
                && serde_json::from_str::<Policy>(&written).unwrap() == message
        );
        for clock in [Clock::Use, Clock::BackToBack] {
            assert_eq!(clock.name().parse(), Ok(clock));
        }
        assert!("late".parse::<Clock>().unwrap_err().contains("back-to-back"));
    }
}
