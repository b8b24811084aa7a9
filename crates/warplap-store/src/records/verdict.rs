//! What was decided: who won, by how much, how surely.

use serde::{Deserialize, Serialize};

use crate::records::candidate::Candidate;

/// How much a verdict can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// The verdict was sure before the budget ended, and the winner's time is known within 5 %.
    Clean,
    /// The winner's time is not known within 5 %: half its interval is wider.
    Noisy,
    /// Other work was running on the device.
    Contended,
    /// The budget or the user ended the race before it was sure who wins.
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

    /// Whether it answers for now only: the next tuning of its key goes on with it.
    pub fn is_provisional(self) -> bool {
        self != Grade::Clean
    }

    /// What the grades mean, in one line for under a table.
    pub const LEGEND: &'static str = "clean: decided, ± at most 5 %; noisy: ± above 5 %; contended: other work ran beside; \
                                      capped: the budget ended first. tune --until-clean goes on with all but clean";

    /// The better, the higher.
    pub fn rank(self) -> u8 {
        match self {
            Grade::Clean => 3,
            Grade::Noisy => 2,
            Grade::Contended => 1,
            Grade::Capped => 0,
        }
    }
}

/// What made the winner the winner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WonBy {
    /// It was the fastest.
    #[default]
    Time,
    /// It is the stored winner, and nobody is surely 2 % faster.
    Incumbent,
    /// As fast as the fastest, with a clearly lower error.
    Error,
    /// As fast as the fastest, with a smaller workspace.
    Workspace,
    /// As fast as the fastest, of a higher priority.
    Priority,
    /// As fast as the fastest, and first by name.
    Name,
    /// The fastest in the form a program calls it, the cost of the call included.
    Call,
}

impl WonBy {
    /// Why somebody else may be as fast and did not win; nothing where the winner was the fastest.
    pub fn reason(self) -> Option<&'static str> {
        match self {
            WonBy::Time => None,
            WonBy::Incumbent => Some("it was the winner before, and nobody is surely 2 % faster"),
            WonBy::Error => Some("a tie, won by the lower error"),
            WonBy::Workspace => Some("a tie, won by the smaller workspace"),
            WonBy::Priority => Some("a tie, won by priority"),
            WonBy::Name => Some("a tie, won by name"),
            WonBy::Call => Some("the fastest as a program calls it, which its kernel alone is not"),
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
    /// How much slower the second best was (0.05 = 5 %); 0 where it may be as fast.
    pub margin: Option<f64>,
    /// Those that could not be told from the winner: the intervals of their gaps hold 0.
    pub ties: Vec<Candidate>,
    /// What made it the winner among those.
    #[serde(default)]
    pub won_by: WonBy,
    /// The race's indifference: differences below it do not matter. For an incumbent that keeps its place, what a gain
    /// must be worth.
    pub eps: f64,
    /// The chance that the winner is within `eps` of the best of all that were timed, by the samples of all heats, and
    /// no more than 1 - delta. 0 where the samples carry none.
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

    /// Half the width of the winner's interval, as a share of its time.
    pub fn plus_minus(&self) -> f64 {
        (self.ci_us[1] - self.ci_us[0]) / 2.0 / self.median_us
    }
}
