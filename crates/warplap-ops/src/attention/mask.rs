//! What is added to the scores of an attention request.

use std::fmt;
use std::str::FromStr;

/// What is added to the scaled scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mask {
    /// Nothing.
    #[default]
    None,
    /// Row-major sq×sk matrices of the problem's type, one for all or one for each of [`super::Over`]. Entries may be -inf.
    Add,
    /// The same of bytes: a zero hides a key from a query, everything else leaves the score as it is.
    Bool,
}

impl fmt::Display for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mask::None => "none",
            Mask::Add => "add",
            Mask::Bool => "bool",
        })
    }
}

impl FromStr for Mask {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "none" => Ok(Mask::None),
            "add" => Ok(Mask::Add),
            "bool" => Ok(Mask::Bool),
            _ => Err(()),
        }
    }
}
