//! Exhaustive search: every candidate, each variant's default first.

use super::ground::Ground;
use super::{Arm, Search};
use crate::candidate::{Candidate, Trial};

/// Every candidate once. All variants' first configs come before anyone's second, so that a spent budget has seen
/// each variant at its default.
pub(super) struct Exhaustive {
    ground: Ground,
    turn: u64,
    arm: usize,
}

impl Exhaustive {
    /// A search over all configs of these arms.
    pub(super) fn new(arms: Vec<Arm>) -> Self {
        Exhaustive { ground: Ground::new(arms), turn: 0, arm: 0 }
    }

    fn next(&mut self) -> Option<Candidate> {
        let longest = (0..self.ground.arms()).map(|a| self.ground.arm_len(a)).max().unwrap_or(0);
        while self.turn < longest {
            let spot = self.ground.nth(self.arm, self.turn);
            self.arm += 1;
            if self.arm == self.ground.arms() {
                (self.arm, self.turn) = (0, self.turn + 1);
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
        std::iter::from_fn(|| self.next()).take(at_most).collect()
    }

    fn tell(&mut self, _: &Trial) {}

    fn likely(&self, at_most: usize) -> Vec<Candidate> {
        self.left.iter().take(at_most).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::arm;
    use super::*;
    use crate::variant::Priority;

    #[test]
    fn each_variants_default_comes_first() {
        let mut search = Exhaustive::new(vec![arm("a", Priority::High, 3), arm("b", Priority::High, 2)]);
        let names: Vec<String> = search.ask(3).iter().map(|c| c.to_string()).collect();
        assert_eq!(names, ["a[i=0]", "b[i=0]", "a[i=1]"]);
    }
}
