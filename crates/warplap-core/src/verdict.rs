//! Who won, by how much, and how surely. Trials come in; a Verdict goes out.

use serde::{Deserialize, Serialize};

use crate::candidate::Candidate;

/// How much a verdict can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// Quiet machine, the race ended by its own rule.
    Clean,
    /// The race ended by its own rule on a noisy machine.
    Noisy,
    /// Other work was running on the device.
    Contended,
    /// The budget or the user ended the race before its rule did.
    Capped,
}

impl Grade {
    /// One word for tables.
    pub fn word(self) -> &'static str {
        match self {
            Grade::Clean => "clean",
            Grade::Noisy => "noisy",
            Grade::Contended => "contended",
            Grade::Capped => "capped",
        }
    }
}

/// Who won, by how much, how surely.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The winner.
    pub winner: Candidate,
    /// Its median time in microseconds.
    pub median_us: f64,
    /// The confidence interval of that median.
    pub ci_us: [f64; 2],
    /// The second best, where there was one.
    pub runner_up: Option<Candidate>,
    /// How much slower the second best was (0.05 = 5 %).
    pub margin: Option<f64>,
    /// Survivors that could not be told from the winner within `eps`.
    pub ties: Vec<Candidate>,
    /// The race's indifference: differences below it do not matter.
    pub eps: f64,
    /// 1 - delta: the chance that the winner is within `eps` of the best.
    pub confidence: f64,
    /// How much this can be trusted.
    pub grade: Grade,
    /// Rounds run.
    pub rounds: u32,
    /// Launches timed, over all candidates.
    pub launches: u64,
}

impl Verdict {
    /// Whether another candidate could have won as well.
    pub fn is_tie(&self) -> bool {
        !self.ties.is_empty()
    }
}
