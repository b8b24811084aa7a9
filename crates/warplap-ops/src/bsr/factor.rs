//! A factor: the alpha or beta of a product, an f32 that is the same as another exactly when its bits are.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

/// A finite f32. Both zeros are one factor.
#[derive(Clone, Copy, Debug)]
pub struct Factor(f32);

impl Factor {
    /// Nothing is added.
    pub const ZERO: Factor = Factor(0.0);
    /// Nothing is scaled.
    pub const ONE: Factor = Factor(1.0);

    /// A factor; `None` for what is not a finite number.
    pub fn new(value: f32) -> Option<Factor> {
        // Adding zero makes one zero of both.
        value.is_finite().then_some(Factor(value + 0.0))
    }

    /// Its value.
    pub fn get(self) -> f32 {
        self.0
    }
}

impl PartialEq for Factor {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Factor {}

impl Hash for Factor {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rust prints the shortest text that reads as the same number.
        write!(f, "{}", self.0)
    }
}

impl FromStr for Factor {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        text.parse().ok().and_then(Factor::new).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_reads_back_what_it_prints_and_is_finite() {
        for value in [1.0, -0.75, 1e-7, 3.3333333, f32::MAX, f32::MIN_POSITIVE] {
            let factor = Factor::new(value).unwrap();
            assert_eq!(factor.to_string().parse(), Ok(factor));
        }
        assert_eq!(Factor::new(-0.0), Some(Factor::ZERO));
        assert!(Factor::new(f32::NAN).is_none() && "inf".parse::<Factor>().is_err());
    }
}
