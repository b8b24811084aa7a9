//! Random search: candidates in random order, each once.

use super::ground::Spot;
use super::walk::{Rule, Seen};

/// Any candidate that was not asked yet.
pub(super) struct Random;

impl Rule for Random {
    fn next(&mut self, seen: &mut Seen) -> Option<Spot> {
        seen.random()
    }
}
