//! What a product is multiplied with before its bias: given factors, or those of an RMSNorm in front of it.

use std::fmt;
use std::str::FromStr;

/// Factors of a product, numbers of f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scale {
    /// There is none.
    #[default]
    None,
    /// One for all of it.
    One,
    /// One for each row, of all products of a batch.
    Rows,
}

impl Scale {
    /// All there are.
    pub const ALL: [Scale; 3] = [Scale::None, Scale::One, Scale::Rows];

    /// The words there are, for messages.
    pub(super) const WORDS: &'static str = "one of none, one, rows";

    /// Its word in problem texts.
    pub const fn name(self) -> &'static str {
        match self {
            Scale::None => "none",
            Scale::One => "one",
            Scale::Rows => "rows",
        }
    }

    /// How many factors there are for so many rows.
    pub fn count(self, rows: u64) -> u64 {
        match self {
            Scale::None => 0,
            Scale::One => 1,
            Scale::Rows => rows,
        }
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scale {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        Scale::ALL.into_iter().find(|scale| scale.name() == text).ok_or(())
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
    pub(super) const WORDS: &'static str = "a number from 1e-20 to 1 that is added under the root";

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

    pub(super) fn none() -> Word {
        Word(None)
    }
}

impl fmt::Display for Rms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.eps().fmt(f)
    }
}

/// A division or none, as a problem's text says.
pub(super) struct Word(pub(super) Option<Rms>);

impl FromStr for Word {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        text.parse().ok().and_then(Rms::new).map(|rms| Word(Some(rms))).ok_or(())
    }
}
