//! What is added to the scores of an attention request.

use std::fmt;
use std::str::FromStr;

use super::tiles::Tiles;

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
    /// A byte for every square of queries and keys, of ceil(sq / side)×ceil(sk / side): a zero hides the whole square, and
    /// the kernels of tiles leave it out.
    Tiles(Tiles),
}

impl Mask {
    /// Whether it says something of single pairs of a query and a key.
    pub fn is_by_pair(self) -> bool {
        matches!(self, Mask::Add | Mask::Bool)
    }

    /// Squares, where it is of them.
    pub fn tiles(self) -> Option<Tiles> {
        if let Mask::Tiles(tiles) = self { Some(tiles) } else { None }
    }
}

impl fmt::Display for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mask::None => "none",
            Mask::Add => "add",
            Mask::Bool => "bool",
            Mask::Tiles(_) => "tiles",
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
            "tiles" => Ok(Mask::Tiles(Tiles::default())),
            _ => Err(()),
        }
    }
}
