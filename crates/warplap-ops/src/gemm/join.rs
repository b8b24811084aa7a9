//! What a product is joined with once it is activated: another matrix that lies as C does, as a word of the problem.

use std::fmt;
use std::str::FromStr;

/// How an element of another matrix is taken in: a residual is added, what a gate lets through is multiplied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Join {
    /// There is no other matrix.
    #[default]
    None,
    /// Its element is added.
    Add,
    /// Its element is multiplied with.
    Mul,
}

impl Join {
    /// All there are.
    pub const ALL: [Join; 3] = [Join::None, Join::Add, Join::Mul];

    /// The words there are, for messages.
    pub(crate) const WORDS: &'static str = "one of none, add, mul";

    /// Its word in problem texts.
    pub const fn name(self) -> &'static str {
        match self {
            Join::None => "none",
            Join::Add => "add",
            Join::Mul => "mul",
        }
    }

    /// How `epilogue.cuh` counts it.
    pub(crate) const fn code(self) -> i64 {
        match self {
            Join::None => 0,
            Join::Add => 1,
            Join::Mul => 2,
        }
    }

    /// The joined value in double precision.
    pub fn of(self, x: f64, other: f64) -> f64 {
        match self {
            Join::None => x,
            Join::Add => x + other,
            Join::Mul => x * other,
        }
    }
}

impl fmt::Display for Join {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Join {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        Join::ALL.into_iter().find(|join| join.name() == text).ok_or(())
    }
}
