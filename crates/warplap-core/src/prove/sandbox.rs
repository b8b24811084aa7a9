//! The sandbox: what crosses the border to a worker process. A request names a candidate; "passed" or a Rejection comes
//! back. What the worker does with it stands in `proving.rs`; how it is started and watched is the device's part.

use serde::{Deserialize, Serialize};

use crate::candidate::Candidate;
use crate::measure::Policy;
use crate::rejection::Rejection;

/// What a worker process is asked to prove: names only, so that it can cross a process boundary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SandboxRequest {
    /// The problem in its text form, the operation's name in front.
    pub problem: String,
    /// Who shall prove itself.
    pub candidate: Candidate,
    /// Seed of the inputs.
    pub seed: u64,
    /// How it will be measured.
    pub policy: Policy,
    /// Seconds its launches may take before it counts as hung.
    pub patience: f64,
    /// Whether it is the reference or an official library's: it may run in the caller's process where no worker can be
    /// started.
    pub trusted: bool,
}

/// What a candidate showed that passed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Passed {
    /// The largest share of the allowed error it took.
    pub error: f64,
    /// Seconds of one launch: a first impression.
    pub seconds: f64,
}

/// What a worker is about to do; each has its own deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProofStage {
    /// Draws inputs and computes right answers: no candidate's fault, however long it takes.
    Draw,
    /// Builds the candidate.
    Build,
    /// Launches it.
    Run,
    /// Compares its answer.
    Judge,
}

/// Why a worker gave no verdict on a candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The candidate failed.
    Rejected(Rejection),
    /// The worker does not know the operation, the variant, or knows other code of it.
    Unknown(String),
}

impl From<Rejection> for Refusal {
    fn from(rejection: Rejection) -> Self {
        Refusal::Rejected(rejection)
    }
}
