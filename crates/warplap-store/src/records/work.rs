//! The useful work of a problem, and when a time for it is no time.

use serde::{Deserialize, Serialize};

/// A time below this share of the floor is a broken measurement: ceilings are measured too, and not exact.
pub const IMPOSSIBLE_BELOW: f64 = 0.9;

/// The useful work of one problem. Sparse operations count non-zero blocks only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Floating-point operations.
    pub flops: f64,
    /// The fewest bytes it must move: each input read once, each output written once.
    pub bytes: f64,
}
