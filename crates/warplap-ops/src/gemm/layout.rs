//! How a matrix lies, and what kind of product two of them make.

use std::fmt;
use std::str::FromStr;

/// The order of a matrix in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Rows are contiguous.
    #[default]
    Row,
    /// Columns are contiguous.
    Col,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Layout::Row { "row" } else { "col" })
    }
}

impl FromStr for Layout {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "row" => Ok(Layout::Row),
            "col" => Ok(Layout::Col),
            _ => Err(()),
        }
    }
}

/// What kind of product it is: a vector on one side makes it a matter of memory, not of arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Matrix times matrix.
    General,
    /// One row times a matrix.
    VecMat,
    /// A matrix times one column.
    MatVec,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::General => "general",
            Kind::VecMat => "vecmat",
            Kind::MatVec => "matvec",
        })
    }
}
