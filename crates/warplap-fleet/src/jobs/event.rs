//! An event: what became of a job, or that a worker is there.

use serde::{Deserialize, Serialize};
use warplap_core::roofline::Ceilings;
use warplap_core::split::GpuContest;

use super::{LineError, line, read};

/// The longest reason that is kept, in bytes.
pub(super) const MOST_WHY: usize = 2000;

/// What an event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Somebody works on it.
    Begun,
    /// The store has its answer.
    Done,
    /// Whoever worked on it is gone; it will be tried again.
    Lost,
    /// It will not be tried again.
    Failed,
    /// This is a device of another class.
    Refused,
    /// Nothing about a job: the worker is there.
    Alive,
}

impl State {
    /// Whether nothing more will be heard of the job from who says it.
    pub fn is_last(self) -> bool {
        matches!(self, State::Done | State::Failed | State::Refused)
    }
}

/// What became of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// The job; empty where a worker only says that it is there.
    pub id: String,
    /// What it says.
    pub state: State,
    /// The machine.
    #[serde(default)]
    pub node: String,
    /// The how manieth try.
    #[serde(default = "super::first")]
    pub attempt: u32,
    /// The reason, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Seconds it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Who won.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub winner: Option<String>,
    /// The winner's time in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median_us: Option<f64>,
    /// Whether nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_store: Option<bool>,
    /// The class of the device that says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// When, in seconds of the machine's clock since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<f64>,
    /// What its card can do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceilings: Option<Box<Ceilings>>,
    /// What its card saw of a part.
    #[serde(rename = "heat", default, skip_serializing_if = "Option::is_none")]
    pub contest: Option<Box<GpuContest>>,
}

impl Event {
    /// An event with nothing but its state.
    pub fn new(id: &str, state: State, node: &str, attempt: u32) -> Event {
        let (id, node) = (id.to_string(), node.to_string());
        let (why, seconds, winner, median_us, from_store, device) = (None, None, None, None, None, None);
        let (at, ceilings, contest) = (None, None, None);
        Event { id, state, node, attempt, why, seconds, winner, median_us, from_store, device, at, ceilings, contest }
    }

    /// The same with a reason.
    pub fn because(mut self, why: impl ToString) -> Event {
        let mut why = why.to_string();
        if why.len() > MOST_WHY {
            let end = (0..=MOST_WHY).rev().find(|at| why.is_char_boundary(*at)).unwrap_or(0);
            why.truncate(end);
            why.push('…');
        }
        self.why = Some(why);
        self
    }

    /// Reads a line.
    pub fn read(line: &str) -> Result<Event, LineError> {
        read(line, "event")
    }

    /// The line of it.
    pub fn line(&self) -> String {
        line(self)
    }
}
