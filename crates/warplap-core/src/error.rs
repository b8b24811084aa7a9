//! Error: no answer can be given. A failed candidate is a Rejection instead.

use crate::model::fields::ProblemError;
use crate::rejection::Rejection;

/// Why no answer can be given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The problem cannot be used.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// The buffers do not fit the problem.
    #[error("argument '{argument}': {reason}")]
    Argument {
        /// Which one.
        argument: String,
        /// What is wrong and what was expected.
        reason: String,
    },
    /// The device cannot do what was asked.
    #[error("device: {0}")]
    Device(String),
    /// Every candidate failed, the reference too.
    #[error("no variant gave a right answer for {problem}; the reference said: {rejection}")]
    NothingRight {
        /// The problem in its text form.
        problem: String,
        /// What became of the reference.
        rejection: Rejection,
    },
    /// The budget is too short to prove anybody right.
    #[error(
        "{problem}: proving a kernel right takes about {needed:.1} s here, expected a budget of more than {budget} s"
    )]
    NoTime {
        /// The problem in its text form.
        problem: String,
        /// Seconds it would take, about.
        needed: f64,
        /// Seconds there are.
        budget: f64,
    },
    /// A kernel that was proved right failed when it was launched.
    #[error("{problem}: {rejection}")]
    Launch {
        /// The problem in its text form.
        problem: String,
        /// What became of the launch.
        rejection: Rejection,
    },
    /// A named variant or setting does not exist.
    #[error("{0}")]
    Unknown(String),
}
