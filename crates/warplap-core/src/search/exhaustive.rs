//! Exhaustive search: every candidate, each variant's default first.

use std::collections::VecDeque;

use super::{Arm, Search};
use crate::candidate::{Candidate, Trial};

/// Every candidate once. All variants' first configs come before anyone's second, so that a spent budget has seen
/// each variant at its default.
#[derive(Debug)]
pub struct Exhaustive {
    left: VecDeque<Candidate>,
}

impl Exhaustive {
    /// A search over all configs of these arms.
    pub fn new(arms: Vec<Arm>) -> Self {
        let longest = arms.iter().map(|a| a.configs.len()).max().unwrap_or(0);
        let turn = |i: usize| arms.iter().filter_map(move |a| a.configs.get(i).map(|c| a.candidate(c)));
        Exhaustive { left: (0..longest).flat_map(turn).collect() }
    }
}

impl Search for Exhaustive {
    fn ask(&mut self, at_most: usize) -> Vec<Candidate> {
        self.left.drain(..at_most.min(self.left.len())).collect()
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
