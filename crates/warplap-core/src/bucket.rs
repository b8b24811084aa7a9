//! A Bucket: the rounding from Problem to Key, in one place.

use std::fmt;
use std::sync::Arc;

/// A user's own rounding: the name of a size and its value come in, the representative goes out (never smaller).
pub type Rounding = Arc<dyn Fn(&str, u64) -> u64 + Send + Sync>;

/// How sizes are rounded before they become part of a Key. Facts that decide whether a kernel is legal (types,
/// layouts, alignment) are never rounded.
#[derive(Clone, Default)]
pub enum Bucket {
    /// Every size has its own key.
    #[default]
    Exact,
    /// Sizes are rounded up to a power of two.
    PowerOfTwo,
    /// The user's own rounding, with the name it carries in keys.
    Own(String, Rounding),
}

impl Bucket {
    /// The representative of a size.
    pub fn round(&self, name: &str, size: u64) -> u64 {
        match self {
            Bucket::Exact => size,
            Bucket::PowerOfTwo => size.checked_next_power_of_two().unwrap_or(size),
            // A representative below the size would race a problem that no member of the bucket is as large as.
            Bucket::Own(_, rounding) => rounding(name, size).max(size),
        }
    }

    /// The name it carries in keys.
    pub fn name(&self) -> &str {
        match self {
            Bucket::Exact => "exact",
            Bucket::PowerOfTwo => "pow2",
            Bucket::Own(name, _) => name,
        }
    }

    /// Whether every size has its own key.
    pub fn is_exact(&self) -> bool {
        matches!(self, Bucket::Exact)
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bucket({})", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up_and_never_down() {
        assert_eq!(Bucket::Exact.round("m", 1000), 1000);
        assert_eq!(Bucket::PowerOfTwo.round("m", 1000), 1024);
        assert_eq!(Bucket::PowerOfTwo.round("m", 1024), 1024);
        assert_eq!(Bucket::PowerOfTwo.round("m", u64::MAX), u64::MAX);
        let tens = Bucket::Own("tens".into(), Arc::new(|_, s| s / 10 * 10));
        assert_eq!(tens.round("m", 25), 25);
    }
}
