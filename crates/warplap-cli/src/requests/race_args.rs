//! The arguments of commands that race: they become Settings.

use clap::Args;
use warplap::any::{AnyDevice, Wanted};
use warplap::core::measure::{CacheState, Clock, Policy, Queueing};
use warplap::core::search;
use warplap::{Bucket, Mode, Settings, Stop};

/// Where, and under which policy.
#[derive(Args, Clone, Debug)]
pub(crate) struct Where {
    /// auto (a GPU where there is one, else the CPU), cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", env = "WARPLAP_DEVICE", default_value = "auto", hide_env_values = true)]
    pub(crate) device: Wanted,
    /// How launches are queued: stream or graph (default: graph on a GPU)
    #[arg(long, value_name = "HOW", value_parser = queueing)]
    pub(crate) queue: Option<Queueing>,
    /// With other data in the caches
    #[arg(long)]
    pub(crate) cold: bool,
    /// What a timed launch stands behind: use (other work, its time taken off) or back-to-back (itself)
    #[arg(long, value_name = "CLOCK", default_value = Clock::Use.name())]
    pub(crate) clock: Clock,
}

impl Where {
    /// The measuring policy on a device.
    pub(crate) fn policy(&self, device: &AnyDevice) -> Policy {
        let mut policy = device.usual_policy();
        policy.queueing = self.queue.unwrap_or(policy.queueing);
        policy.cache = if self.cold { CacheState::Cold } else { policy.cache };
        policy.clock = self.clock;
        policy
    }
}

/// How to race.
#[derive(Args, Clone, Debug)]
pub(crate) struct RaceArgs {
    #[command(flatten)]
    pub(crate) place: Where,
    /// Seconds for each problem (default 4)
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) budget: Option<f64>,
    /// Differences below this share do not matter
    #[arg(long, value_name = "E", default_value_t = 0.01, value_parser = |t: &str| share(t, 0.5))]
    pub(crate) eps: f64,
    /// The chance of a wrong verdict that is accepted
    #[arg(long, value_name = "D", default_value_t = 0.01, value_parser = |t: &str| share(t, 0.5))]
    pub(crate) delta: f64,
    /// The search: auto, tiers, exhaustive, random, climb, genetic, evolution, annealing, swarm, surrogate or halving
    #[arg(long, value_name = "NAME", default_value = search::NAMES[0], value_parser = search_name)]
    pub(crate) search: String,
    /// The seed of everything random
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Race again even what is known; the stored winner defends its place
    #[arg(long)]
    pub(crate) again: bool,
}

impl RaceArgs {
    /// The settings of a tuner.
    pub(crate) fn settings(&self, device: &AnyDevice, mode: Mode, bucket: Bucket, stop: &Stop) -> Settings {
        let mut settings = Settings {
            mode,
            bucket,
            policy: self.place.policy(device),
            eps: self.eps,
            delta: self.delta,
            search: self.search.clone(),
            seed: self.seed,
            stop: stop.clone(),
            again: self.again,
            yardsticks: true,
            ..Settings::default()
        };
        if let Some(seconds) = self.budget {
            settings.budget.seconds = seconds;
        }
        settings
    }
}

fn queueing(text: &str) -> Result<Queueing, String> {
    match text {
        "stream" => Ok(Queueing::Stream),
        "graph" => Ok(Queueing::Graph),
        _ => Err("expected stream or graph".into()),
    }
}

/// Reads a mode that suits a program which ends when it has answered.
pub(crate) fn mode(text: &str) -> Result<Mode, String> {
    let known = text.parse().ok().filter(|mode| *mode != Mode::Background);
    known.ok_or_else(|| format!("'{text}' is not a mode of this command: expected off, replay, record or tune"))
}

/// Reads a bucket's name.
pub(crate) fn bucket(text: &str) -> Result<Bucket, String> {
    Bucket::named(text)
}

/// Reads seconds: more than none, at most a day.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    number(text, 86_400.0).ok_or_else(|| "expected seconds, more than 0 and at most 86400".into())
}

fn share(text: &str, most: f64) -> Result<f64, String> {
    number(text, most).ok_or_else(|| format!("expected a share, more than 0 and at most {most}"))
}

fn number(text: &str, most: f64) -> Option<f64> {
    text.parse::<f64>().ok().filter(|v| *v > 0.0 && *v <= most)
}

/// Reads a search's name.
pub(crate) fn search_name(text: &str) -> Result<String, String> {
    if search::NAMES.contains(&text) {
        Ok(text.into())
    } else {
        Err(format!("expected one of {}", search::NAMES.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_say_what_was_expected() {
        for text in ["0", "-1", "nan", "inf", "1e9", "x", ""] {
            assert!(seconds(text).unwrap_err().contains("expected"), "{text}");
        }
        assert_eq!(seconds("0.5"), Ok(0.5));
        assert!(share("0.6", 0.5).is_err() && queueing("x").is_err());
    }
}
