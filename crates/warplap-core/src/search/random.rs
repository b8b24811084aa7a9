//! Random search: candidates in random order, each once.

use super::ground::Spot;
use super::walk::{Seen, WalkRule};

/// Any candidate that was not asked yet.
pub(super) struct Random;

impl WalkRule for Random {
    fn next(&mut self, seen: &mut Seen) -> Option<Spot> {
        seen.random()
    }
}
