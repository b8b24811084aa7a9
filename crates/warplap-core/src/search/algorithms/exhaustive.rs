//! Exhaustive search: every candidate, each variant's default first.

use crate::candidate::{Candidate, Trial};
use crate::search::ground::Ground;
use crate::search::{Arm, Search};

/// Every candidate once. All variants' first configs come before anyone's second, so that a spent budget has seen
/// each variant at its default.
pub(crate) struct Exhaustive {
    ground: Ground,
    at: Turn,
}

/// Which config of which arm is next.
#[derive(Clone, Copy, Default)]
struct Turn {
    turn: u64,
    arm: usize,
}

impl Exhaustive {
    /// A search over all configs of these arms.
    pub(crate) fn new(arms: Vec<Arm>) -> Self {
        Exhaustive { ground: Ground::new(arms), at: Turn::default() }
    }

    /// The candidate at a place, which moves on.
    fn next(&self, at: &mut Turn) -> Option<Candidate> {
        let longest = (0..self.ground.arms()).map(|a| self.ground.arm_len(a)).max().unwrap_or(0);
        while at.turn < longest {
            let spot = self.ground.nth(at.arm, at.turn);
            at.arm += 1;
            if at.arm == self.ground.arms() {
                *at = Turn { arm: 0, turn: at.turn + 1 };
            }
            if let Some(candidate) = spot.and_then(|s| self.ground.candidate(s)) {
                return Some(candidate);
            }
        }
        None
    }
}

impl Search for Exhaustive {
    fn ask(&mut self, at_most: usize) -> Vec<Candidate> {
        let mut at = self.at;
        let asked = std::iter::from_fn(|| self.next(&mut at)).take(at_most).collect();
        self.at = at;
        asked
    }

    fn ask_early(&mut self, at_most: usize) -> Vec<Candidate> {
        self.ask(at_most)
    }

    fn tell(&mut self, _: &Trial) {}

    fn likely(&self, at_most: usize) -> Vec<Candidate> {
        let mut at = self.at;
        std::iter::from_fn(|| self.next(&mut at)).take(at_most).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidates::variant::Priority;
    use crate::search::tests::arm;

    #[test]
    fn each_variants_default_comes_first() {
        let mut search = Exhaustive::new(vec![arm("a", Priority::High, 3), arm("b", Priority::High, 2)]);
        let names: Vec<String> = search.ask(3).iter().map(|c| c.to_string()).collect();
        assert_eq!(names, ["a[i=0]", "b[i=0]", "a[i=1]"]);
    }
}
