//! What a product is multiplied with before its bias: given factors, or those of an RMSNorm in front of it.

use warplap_core::declare::words;

use std::fmt;
use std::str::FromStr;

words! {
    /// Factors of a product, numbers of f32.
    #[derive(Default)]
    pub enum Scale {
        /// There is none.
        #[default]
        None = "none",
        /// One for all of it.
        One = "one",
        /// One for each row, of all products of a batch.
        Rows = "rows",
    }
}

impl Scale {
    /// How many factors there are for so many rows.
    pub fn count(self, rows: u64) -> u64 {
        match self {
            Scale::None => 0,
            Scale::One => 1,
            Scale::Rows => rows,
        }
    }
}

/// A division of rows by their root mean square, 1/√(mean(x²) + eps): the number under the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rms {
    /// Of an f32: problems are compared and hashed.
    bits: u32,
}

impl Rms {
    /// What the number may be, for messages.
    pub(super) const EXPECTED: &'static str = "a number from 1e-20 to 1 that is added under the root";

    /// The division with this number, where it may be one.
    pub fn new(eps: f32) -> Option<Self> {
        (1e-20..=1.0).contains(&eps).then_some(Rms { bits: eps.to_bits() })
    }

    /// The number that is added under the root.
    pub fn eps(self) -> f32 {
        f32::from_bits(self.bits)
    }

    /// What the factor of a row is.
    pub(super) fn factor(self, row: &[f64]) -> f64 {
        let squares: f64 = row.iter().map(|x| x * x).sum();
        1.0 / (squares / row.len().max(1) as f64 + f64::from(self.eps())).sqrt()
    }
}

impl fmt::Display for Rms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.eps().fmt(f)
    }
}

impl FromStr for Rms {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        text.parse().ok().and_then(Rms::new).ok_or(())
    }
}
