//! A Bucket: the rounding from Problem to Key, in one place.

use std::fmt;
use std::sync::Arc;

/// A user's own rounding: the name of a size and its value come in, the representative goes out (never smaller).
pub type Rounding = Arc<dyn Fn(&str, u64) -> u64 + Send + Sync>;

/// The largest size whose bucket is a power of two: below it each doubling is another matter (one row, a handful, a
/// tile), above it kernels differ less than their races cost.
const FINE: u64 = 32;

/// How sizes are rounded before they become part of a Key. Facts that decide whether a kernel is legal (types,
/// layouts, alignment) are never rounded.
#[derive(Clone, Default)]
pub enum Bucket {
    /// Sizes that change from call to call in programs (rows, positions of a sequence; an operation says which) share a
    /// key: up to 32 with those up to the next power of two, above it up to the next of 128, 512, 2048 and so on. What
    /// is raced is the problem that was asked for first: whoever asks for one size gets its own winner.
    #[default]
    Changing,
    /// Every size has its own key.
    Exact,
    /// Sizes are rounded up to a power of two.
    PowerOfTwo,
    /// The user's own rounding, with the name it carries in keys.
    Own(String, Rounding),
}

impl Bucket {
    /// The representative of a size that changes from call to call.
    pub fn round_changing(&self, name: &str, size: u64) -> u64 {
        match self {
            Bucket::Changing if size > FINE => {
                // 32, 128, 512 …: five bits and an even number more.
                let bits = u64::BITS - (size - 1).leading_zeros();
                1u64.checked_shl(bits + (bits + 1) % 2).unwrap_or(size).max(size)
            }
            Bucket::Changing => size.next_power_of_two(),
            other => other.round(name, size),
        }
    }

    /// The representative of a size that is a fact of the program: a layer's width, a head's.
    pub fn round(&self, name: &str, size: u64) -> u64 {
        match self {
            Bucket::Exact | Bucket::Changing => size,
            Bucket::PowerOfTwo => size.checked_next_power_of_two().unwrap_or(size),
            // A representative below the size would race a problem that no member of the bucket is as large as.
            Bucket::Own(_, rounding) => rounding(name, size).max(size),
        }
    }

    /// The name it carries in keys.
    pub fn name(&self) -> &str {
        match self {
            Bucket::Changing => "changing",
            Bucket::Exact => "exact",
            Bucket::PowerOfTwo => "pow2",
            Bucket::Own(name, _) => name,
        }
    }

    /// The bucket of a name that a user may say.
    pub fn named(name: &str) -> Result<Bucket, String> {
        let known = [Bucket::Changing, Bucket::Exact, Bucket::PowerOfTwo];
        let result = known.into_iter().find(|b| b.name() == name);
        result.ok_or_else(|| format!("'{name}' is not known, expected changing, exact or pow2"))
    }

    /// Whether every size has its own key.
    pub fn is_exact(&self) -> bool {
        matches!(self, Bucket::Exact)
    }

    /// Whether the problem that was asked for is raced, not one of rounded sizes.
    pub fn races_what_is_asked(&self) -> bool {
        matches!(self, Bucket::Exact | Bucket::Changing)
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
        assert_eq!(Bucket::Changing.round("k", 1000), 1000);
        let tens = Bucket::Own("tens".into(), Arc::new(|_, s| s / 10 * 10));
        assert_eq!(tens.round("m", 25), 25);
    }

    #[test]
    fn changing_sizes_are_fine_where_small_and_coarse_where_large() {
        let round = |size| Bucket::Changing.round_changing("m", size);
        let small: Vec<u64> = (1..=17).map(round).collect();
        assert_eq!(small, [1, 2, 4, 4, 8, 8, 8, 8, 16, 16, 16, 16, 16, 16, 16, 16, 32]);
        let edges = [32, 33, 57, 91, 128, 129, 512, 513, 2048, 2049, 1 << 20, (1 << 62) + 1];
        let rounded = edges.map(round);
        assert_eq!(rounded, [32, 128, 128, 128, 128, 512, 512, 2048, 2048, 8192, 1 << 21, 1 << 63]);
        assert!(round(u64::MAX) == u64::MAX && round(0) <= 1);
        assert_eq!(Bucket::Exact.round_changing("m", 33), 33);
        assert_eq!(Bucket::PowerOfTwo.round_changing("m", 33), 64);
    }

    #[test]
    fn buckets_are_found_by_the_name_they_carry() {
        for bucket in [Bucket::Changing, Bucket::Exact, Bucket::PowerOfTwo] {
            assert_eq!(Bucket::named(bucket.name()).unwrap().name(), bucket.name());
        }
        assert!(Bucket::named("pow3").unwrap_err().contains("expected changing, exact or pow2"));
    }
}
