//! Random search: candidates in random order, each once.

use super::{Arm, Search};
use crate::candidate::{Candidate, Trial};

/// Candidates in random order, each once.
#[derive(Debug)]
pub struct Random {
    left: Vec<Candidate>,
}

impl Random {
    /// A shuffled walk over all configs of these arms.
    pub fn new(arms: Vec<Arm>, seed: u64) -> Self {
        let mut left: Vec<Candidate> = arms.iter().flat_map(|a| a.configs.iter().map(|c| a.candidate(c))).collect();
        fastrand::Rng::with_seed(seed).shuffle(&mut left);
        Random { left }
    }
}

impl Search for Random {
    fn ask(&mut self, at_most: usize) -> Vec<Candidate> {
        self.left.split_off(self.left.len().saturating_sub(at_most))
    }

    fn tell(&mut self, _: &Trial) {}
}

#[cfg(test)]
mod tests {
    use super::super::tests::arm;
    use super::*;
    use crate::variant::Priority;

    #[test]
    fn the_order_is_the_seeds() {
        let order = |seed| Random::new(vec![arm("a", Priority::High, 50)], seed).ask(50);
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
    }
}
