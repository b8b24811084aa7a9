//! How a matrix lies, and what kind of product two of them make.

use warplap_core::declare::words;

use std::fmt;

words! {
    /// The order of a matrix in memory.
    #[derive(Default)]
    pub enum Layout {
        /// Rows are contiguous.
        #[default]
        Row = "row",
        /// Columns are contiguous.
        Col = "col",
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
