//! Why a space cannot be used: a sentence that names the axis or the rule.

use super::expr::ExprError;
use crate::io::sanitize_text::brief;

/// Why a space cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpaceError {
    /// A rule or a derived value cannot be read, names what is not there, or mixes kinds.
    #[error("{what}: {error}")]
    Expr {
        /// Which rule or derived value.
        what: String,
        /// What is wrong, and where.
        error: ExprError,
    },
    /// An axis has no values.
    #[error("axis '{0}' has no values: expected at least one")]
    NoValues(String),
    /// An axis has more values than can be numbered.
    #[error("axis '{0}' has more than 65,535 values: expected fewer")]
    TooManyValues(String),
    /// Two axes or derived values share a name.
    #[error("'{0}' is there twice: expected one axis or derived value of that name")]
    Twice(String),
    /// One rule alone leaves nothing.
    #[error("the rule '{}' is never true: no setting of its axes obeys it", brief(.0))]
    NeverTrue(String),
    /// The rules together leave nothing.
    #[error("the rules leave no legal config: '{}' is the first that contradicts those before it", brief(.0))]
    Contradiction(String),
    /// The count leaves 128 bits.
    #[error("the space holds more than 2^128 configs: expected fewer axes or values, or more rules")]
    TooLarge,
    /// The rules connect so many axes that no structure is left.
    #[error("the rules connect too many values at once to be enumerated: expected fewer values, or simpler rules")]
    TooEntangled,
}
