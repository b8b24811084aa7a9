//! A Candidate is a Variant with a Config; a Trial is what became of it.

use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::records::config::Config;
use crate::records::measurement::{Behind, Measurement};
use crate::records::rejection::Rejection;
use crate::records::resources::Resources;

/// Identity of the code behind a variant: records made by other code are stale.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SourceHash(pub String);

impl SourceHash {
    /// The hash of one or several texts: sources, or identities of sources.
    pub fn of(sources: &[&str]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for source in sources {
            hasher.update(&(source.len() as u64).to_le_bytes());
            hasher.update(source.as_bytes());
        }
        SourceHash(hasher.finalize().to_hex()[..16].to_string())
    }
}

/// A variant by id, one setting of its axes, and the code it stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Candidate {
    /// The variant's id: file stem and kernel entry name.
    pub variant: String,
    /// One setting by named axes.
    pub config: Config,
    /// The code behind the variant when this candidate was listed.
    pub source: SourceHash,
}

impl Candidate {
    /// Whether both name the same variant and setting, whatever the code behind them.
    pub fn same_setting(&self, other: &Candidate) -> bool {
        self.variant == other.variant && self.config == other.config
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.variant)?;
        if !self.config.0.is_empty() {
            write!(f, "[{}]", self.config)?;
        }
        Ok(())
    }
}

/// How a trial ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It stayed in the race to the end.
    Measured(Measurement),
    /// It left, and why.
    Rejected(Rejection),
}

/// One candidate's run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Who ran.
    #[serde(flatten)]
    pub candidate: Candidate,
    /// What became of it.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Where it ran, where the space was split over several cards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<Box<Ran>>,
}

/// Where a trial of a space that was split over cards ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ran {
    /// The card whose time it is.
    pub card: String,
    /// Whether it was screened there or in the finals.
    pub stage: Stage,
    /// What it took on other cards at the same stage.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<GpuTime>,
}

/// How far a candidate of a split space came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// It raced within its share, on one card.
    Screened,
    /// It raced against the best of all shares, on several cards.
    Finals,
}

/// What a candidate took on a card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuTime {
    /// The card.
    pub card: String,
    /// Its median time there in microseconds.
    pub median_us: f64,
    /// The confidence interval of that median.
    pub ci_us: [f64; 2],
}

impl Outcome {
    /// What was measured, of those that finished and those that were outpaced.
    pub fn measurement(&self) -> Option<&Measurement> {
        match self {
            Outcome::Measured(m) | Outcome::Rejected(Rejection::Outpaced { measurement: m }) => Some(m),
            Outcome::Rejected(_) => None,
        }
    }
}

impl Trial {
    /// What became of a candidate on the one card there is.
    pub fn new(candidate: Candidate, outcome: Outcome) -> Self {
        Trial { candidate, outcome, ran: None }
    }

    /// What was measured, of those that finished and those that were outpaced.
    pub fn measurement(&self) -> Option<&Measurement> {
        self.outcome.measurement()
    }

    /// Writes down how far it is behind the winner, where it was timed.
    pub fn place(&mut self, behind: &HashMap<Candidate, Behind>) {
        if let Outcome::Measured(m) | Outcome::Rejected(Rejection::Outpaced { measurement: m }) = &mut self.outcome {
            m.behind = behind.get(&self.candidate).copied().map(Box::new);
        }
    }

    /// Writes down what its kernel takes, where it was timed.
    pub fn takes(&mut self, resources: Option<Resources>) {
        if let Outcome::Measured(m) | Outcome::Rejected(Rejection::Outpaced { measurement: m }) = &mut self.outcome {
            m.resources = resources.map(Box::new);
        }
    }

    /// Drops its single samples; what was made of them stays.
    pub fn forget_samples(&mut self) {
        if let Outcome::Measured(m) | Outcome::Rejected(Rejection::Outpaced { measurement: m }) = &mut self.outcome {
            m.samples_us.clear();
        }
    }

    /// The median time in microseconds of its own samples. Those of different heats do not compare: see
    /// `TuningRun::ranked`.
    pub fn median_us(&self) -> Option<f64> {
        self.measurement().map(|m| m.median_us)
    }

    /// What it was raced for, the lower the better: its median time in microseconds, or its cost by another objective.
    pub fn cost(&self) -> Option<f64> {
        self.measurement().map(Measurement::raced_for)
    }

    /// Whether the candidate gave the right answer (it was timed for the record).
    pub fn is_right(&self) -> bool {
        self.measurement().is_some()
    }

    /// Whether its turn never came.
    pub fn is_unseen(&self) -> bool {
        matches!(self.outcome, Outcome::Rejected(Rejection::TimedOut { .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_on_the_one_card_there_is_has_the_bytes_it_always_had() {
        let old = r#"{"variant":"v","config":{},"source":"s","rejected":{"why":"crashed","reason":"r"}}"#;
        let mut trial: Trial = serde_json::from_str(old).unwrap();
        assert_eq!((serde_json::to_string(&trial).unwrap().as_str(), &trial.ran), (old, &None));
        trial.ran = Some(Box::new(Ran { card: "node:cuda-1".into(), stage: Stage::Finals, also: Vec::new() }));
        let text = serde_json::to_string(&trial).unwrap();
        assert!(text.ends_with(r#""ran":{"card":"node:cuda-1","stage":"finals"}}"#), "{text}");
        assert_eq!(serde_json::from_str::<Trial>(&text).unwrap(), trial);
    }
}
