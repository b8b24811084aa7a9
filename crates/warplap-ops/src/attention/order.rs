//! Words of an attention request: the order of its dimensions, and what is added to its scores.

use std::fmt;
use std::str::FromStr;

/// The order of the four dimensions in memory, outermost first. Rows of one head are contiguous in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// Batch, head, position, element.
    #[default]
    Bhsd,
    /// Batch, position, head, element.
    Bshd,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Order::Bhsd { "bhsd" } else { "bshd" })
    }
}

impl FromStr for Order {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "bhsd" => Ok(Order::Bhsd),
            "bshd" => Ok(Order::Bshd),
            _ => Err(()),
        }
    }
}

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
