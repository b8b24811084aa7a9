//! How a command ends: an exit code, and on failure one clear sentence.

use std::io;

use warplap::core::problem::ProblemError;
use warplap::core::store::StoreError;
use warplap::core::store::bundle::BundleError;

/// The exit codes, as `--help` shows them.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    ok
  1    no answer, or a check failed
  2    bad input: one sentence says which field and what was expected; nothing was changed
  130  interrupted: what was measured until then is kept";

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Ok,
    NoAnswer,
    BadInput,
    Interrupted,
}

impl Exit {
    /// Its number.
    pub(crate) fn number(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::NoAnswer => 1,
            Exit::BadInput => 2,
            Exit::Interrupted => 130,
        }
    }
}

/// Why a command ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// What the user gave cannot be used.
    #[error("{0}")]
    Input(String),
    /// There is no answer to give.
    #[error("{0}")]
    NoAnswer(String),
    /// Whoever read our output has gone: no news to anyone.
    #[error("the reader of the output has gone")]
    Pipe,
}

impl Failure {
    /// A sentence about bad input.
    pub(crate) fn input(sentence: impl ToString) -> Self {
        Failure::Input(sentence.to_string())
    }

    /// How the process ends.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Failure::Input(_) => Exit::BadInput,
            Failure::NoAnswer(_) => Exit::NoAnswer,
            Failure::Pipe => Exit::Ok,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::BrokenPipe => Failure::Pipe,
            _ => Failure::NoAnswer(format!("the output cannot be written: {e}")),
        }
    }
}

impl From<ProblemError> for Failure {
    fn from(e: ProblemError) -> Self {
        Failure::input(e)
    }
}

impl From<StoreError> for Failure {
    fn from(e: StoreError) -> Self {
        match e {
            // A disk that is full or a store that is busy is nobody's bad input.
            StoreError::Io { .. } | StoreError::Busy { .. } | StoreError::Backend { .. } => {
                Failure::NoAnswer(e.to_string())
            }
            e => Failure::input(e),
        }
    }
}

impl From<BundleError> for Failure {
    fn from(e: BundleError) -> Self {
        Failure::input(e)
    }
}

impl From<warplap::Error> for Failure {
    fn from(e: warplap::Error) -> Self {
        use warplap::Error;
        match e {
            Error::Problem(_) | Error::Unknown(_) | Error::Argument { .. } => Failure::input(e),
            _ => Failure::NoAnswer(e.to_string()),
        }
    }
}
