//! Why the far side did not answer.

use std::time::Duration;

use postgres::error::SqlState;

use super::address::cause;

/// Why the far side did not answer. Nobody loses anything by it: the near store goes on.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FarError {
    /// It cannot be reached.
    #[error("it cannot be reached: {0}")]
    Down(String),
    /// It did not answer in time.
    #[error("it did not answer within {} ms", .0.as_millis())]
    Slow(Duration),
    /// It has no session to spare, or is just starting.
    #[error("it says: {0}")]
    Busy(String),
    /// It failed not long ago and is left alone for a while.
    #[error("it is left alone for a while because it failed before")]
    Resting,
    /// It answered with an error.
    #[error("it says: {0}")]
    Refused(String),
    /// It has no tables of ours, or those of another version.
    #[error("{0}")]
    Schema(String),
}

impl FarError {
    /// What an error of the client means.
    pub fn of(error: &postgres::Error) -> FarError {
        match error.code() {
            Some(code)
                if [&SqlState::UNDEFINED_TABLE, &SqlState::UNDEFINED_COLUMN, &SqlState::INVALID_SCHEMA_NAME]
                    .contains(&code) =>
            {
                FarError::Schema(format!("it has no tables of this version: {} (warplap fleet init)", cause(error)))
            }
            Some(code) if [&SqlState::TOO_MANY_CONNECTIONS, &SqlState::CANNOT_CONNECT_NOW].contains(&code) => {
                FarError::Busy(cause(error))
            }
            // Wrong passwords and unknown databases are said by the server.
            Some(_) => FarError::Refused(cause(error)),
            None => FarError::Down(cause(error)),
        }
    }
}
