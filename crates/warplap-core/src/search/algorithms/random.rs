//! Random search: candidates in random order, each once.

use crate::search::ground::Spot;
use crate::search::walk::{Seen, WalkRule};

/// Any candidate that was not asked yet.
pub(crate) struct Random;

impl WalkRule for Random {
    fn next(&mut self, seen: &mut Seen) -> Option<Spot> {
        seen.random()
    }
}
