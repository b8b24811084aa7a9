//! The arguments of commands that race: they become Settings.

use clap::Args;
use warplap::core::measure::{CacheState, Policy};
use warplap::core::search;
use warplap::{Bucket, Mode, Settings, Stop};

/// How to race.
#[derive(Args, Clone, Debug)]
pub(crate) struct RaceArgs {
    /// Where to race: cpu
    #[arg(long, value_name = "DEVICE", default_value = "cpu", value_parser = device)]
    pub(crate) device: String,
    /// Seconds for each problem (default 4)
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) budget: Option<f64>,
    /// Differences below this share do not matter
    #[arg(long, value_name = "E", default_value_t = 0.01, value_parser = |t: &str| share(t, 0.5))]
    pub(crate) eps: f64,
    /// The chance of a wrong verdict that is accepted
    #[arg(long, value_name = "D", default_value_t = 0.01, value_parser = |t: &str| share(t, 0.5))]
    pub(crate) delta: f64,
    /// The search: tiers, exhaustive or random
    #[arg(long, value_name = "NAME", default_value = search::NAMES[0], value_parser = search_name)]
    pub(crate) search: String,
    /// The seed of everything random
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Time with other data in the caches
    #[arg(long)]
    pub(crate) cold: bool,
    /// Race again even what is known; the stored winner defends its place
    #[arg(long)]
    pub(crate) again: bool,
}

impl RaceArgs {
    /// The settings of a tuner.
    pub(crate) fn settings(&self, mode: Mode, bucket: Bucket, stop: &Stop) -> Settings {
        let mut settings = Settings {
            mode,
            bucket,
            policy: policy(self.cold),
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

/// The measuring policy.
pub(crate) fn policy(cold: bool) -> Policy {
    let cache = if cold { CacheState::Cold } else { CacheState::Hot };
    Policy { cache, ..Policy::default() }
}

/// Reads a device's name.
pub(crate) fn device(text: &str) -> Result<String, String> {
    match text {
        "cpu" => Ok(text.into()),
        "cuda" => Err("expected cpu: there is no CUDA device support in this build".into()),
        _ => Err("expected cpu".into()),
    }
}

/// Reads a bucket's name.
pub(crate) fn bucket(text: &str) -> Result<Bucket, String> {
    match text {
        "exact" => Ok(Bucket::Exact),
        "pow2" => Ok(Bucket::PowerOfTwo),
        _ => Err("expected exact or pow2".into()),
    }
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

fn search_name(text: &str) -> Result<String, String> {
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
        assert!(share("0.6", 0.5).is_err() && device("cuda").unwrap_err().contains("CUDA"));
    }
}
