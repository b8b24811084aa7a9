//! Search: proposes Candidates and learns from Trials. Knows no device, no clock, no kernel.

mod exhaustive;
mod random;
mod tiers;

pub use exhaustive::Exhaustive;
pub use random::Random;
pub use tiers::Tiers;

use crate::candidate::{Candidate, SourceHash, Trial};
use crate::record::Skipped;
use crate::space::{Config, Space};
use crate::variant::Priority;

/// One variant's part of a search: what is left of its space after pruning.
#[derive(Clone, Debug)]
pub struct Arm {
    /// The variant's id.
    pub variant: String,
    /// The code behind it.
    pub source: SourceHash,
    /// How eagerly it should be raced.
    pub priority: Priority,
    /// Its space, for moves.
    pub space: Space,
    /// Its legal configs, the default first.
    pub configs: Vec<Config>,
}

impl Arm {
    /// One of its configs as a candidate.
    pub fn candidate(&self, config: &Config) -> Candidate {
        Candidate { variant: self.variant.clone(), config: config.clone(), source: self.source.clone() }
    }
}

/// Proposes candidates and learns from their trials. Deterministic by its seed.
pub trait Search: Send {
    /// Up to `at_most` candidates that were not asked before; none when the search has ended.
    fn ask(&mut self, at_most: usize) -> Vec<Candidate>;

    /// What became of a candidate.
    fn tell(&mut self, trial: &Trial);

    /// Up to `at_most` candidates that will be asked for next whatever is told meanwhile, so that they can be compiled
    /// ahead. A search that learns from every trial names none.
    fn likely(&self, _at_most: usize) -> Vec<Candidate> {
        Vec::new()
    }

    /// What it decided not to propose, and why.
    fn skipped(&self) -> Vec<Skipped> {
        Vec::new()
    }
}

/// The searches there are, by the name users give. The first is the default.
pub const NAMES: [&str; 3] = ["tiers", "exhaustive", "random"];

/// A search by name. `floor_us` is the roofline's floor, where one is known.
pub fn named(name: &str, arms: Vec<Arm>, seed: u64, floor_us: Option<f64>) -> Option<Box<dyn Search>> {
    match name {
        "tiers" => Some(Box::new(Tiers::new(arms, floor_us, |arms| Box::new(Exhaustive::new(arms))))),
        "exhaustive" => Some(Box::new(Exhaustive::new(arms))),
        "random" => Some(Box::new(Random::new(arms, seed))),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::candidate::Outcome;
    use crate::measure::Measurement;
    use crate::rejection::Rejection;

    pub(crate) fn arm(variant: &str, priority: Priority, configs: usize) -> Arm {
        Arm {
            variant: variant.into(),
            source: SourceHash::of(&[variant]),
            priority,
            space: Space::single(),
            configs: (0..configs as i64).map(|i| Config::new().with("i", i)).collect(),
        }
    }

    pub(crate) fn measured(candidate: Candidate, median_us: f64) -> Trial {
        Trial { candidate, outcome: Outcome::Measured(Measurement { median_us, ..Measurement::default() }) }
    }

    pub(crate) fn failed(candidate: Candidate) -> Trial {
        Trial { candidate, outcome: Outcome::Rejected(Rejection::Crashed { reason: "test".into() }) }
    }

    #[test]
    fn every_search_proposes_every_candidate_at_most_once_and_ends() {
        for name in NAMES {
            let arms = vec![arm("a", Priority::High, 7), arm("b", Priority::High, 3), arm("c", Priority::Low, 5)];
            let mut search = named(name, arms, 1, None).unwrap();
            let mut seen = std::collections::HashSet::new();
            loop {
                let batch = search.ask(4);
                if batch.is_empty() {
                    break;
                }
                assert!(batch.len() <= 4, "{name}");
                for candidate in batch {
                    search.tell(&failed(candidate.clone()));
                    assert!(seen.insert(candidate), "{name} asked twice");
                }
            }
            assert_eq!(seen.len(), 15, "{name}");
        }
        assert!(named("nonesuch", Vec::new(), 1, None).is_none());
    }
}
