//! Search: proposes Candidates and learns from Trials. Knows no device, no clock, no kernel.

mod algorithms;
mod arm;
mod going_on;
mod ground;
mod hints;
mod mind;
mod population;
mod registered;
mod tiers;
mod walk;

pub use arm::Arm;
pub(crate) use going_on::GoingOn;
pub use registered::{names, register};

use crate::candidate::{Candidate, Trial};
use crate::record::Skipped;
use algorithms::annealing::Annealing;
use algorithms::climb::Climb;
use algorithms::evolution::Evolution;
use algorithms::exhaustive::Exhaustive;
use algorithms::genetic::Genetic;
use algorithms::halving::Halving;
use algorithms::random::Random;
use algorithms::surrogate::Surrogate;
use algorithms::swarm::Swarm;
use tiers::Tiers;
use walk::{Walk, WalkRule};

/// Proposes candidates and learns from their trials. Deterministic by its seed.
pub trait Search: Send {
    /// Up to `at_most` candidates that were not asked before; none when the search has ended.
    fn ask(&mut self, at_most: usize) -> Vec<Candidate>;

    /// What became of a candidate.
    fn tell(&mut self, trial: &Trial);

    /// Like [`Search::ask`], while something asked before is still to be told: what comes next must not hang on it.
    /// Where it does, none.
    fn ask_early(&mut self, _at_most: usize) -> Vec<Candidate> {
        Vec::new()
    }

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

/// What a search is told before it starts.
#[derive(Clone, Debug, Default)]
pub struct Brief {
    /// The seed of everything random.
    pub seed: u64,
    /// The roofline's floor in microseconds, where one is known.
    pub floor_us: Option<f64>,
    /// Whether the variants' defaults mean something and should be tried before anything else.
    pub defaults: bool,
    /// What won elsewhere, best first: on other devices, for neighbouring keys. They are tried first and never trusted.
    pub priors: Vec<Candidate>,
    /// All that was measured where the donors come from, with what it cost there: a forecast that is believed as far as
    /// it proves right. May be empty.
    pub elsewhere: Vec<(Candidate, f64)>,
}

/// The searches there are, by the name users give. The first is the default.
pub const NAMES: [&str; 11] = [
    "auto",
    "tiers",
    "exhaustive",
    "random",
    "climb",
    "genetic",
    "evolution",
    "annealing",
    "swarm",
    "surrogate",
    "halving",
];

/// At most so many donors are tried: a bad one costs no more trials than that.
pub const DONORS: usize = 10;

/// Tiers of several variants with at most so many candidates are searched exhaustively by `auto`, as the race itself
/// drops the slow ones early; the space of a single variant is one landscape, and worth a model sooner.
const FEW: u64 = 512;
const FEW_OF_ONE: u64 = 128;

/// A search by name.
///
/// `auto` races one priority after the other; small tiers exhaustively, larger ones with the surrogate.
pub fn named(name: &str, arms: Vec<Arm>, brief: &Brief) -> Option<Box<dyn Search>> {
    let exhaustive = |arms| -> Box<dyn Search> { Box::new(Exhaustive::new(arms)) };
    Some(match name {
        "auto" => {
            let own = brief.clone();
            let inner = move |arms: Vec<Arm>| -> Box<dyn Search> {
                let few = if arms.len() == 1 { FEW_OF_ONE } else { FEW };
                match arms.iter().map(Arm::len).fold(0, u64::saturating_add) <= few {
                    true => exhaustive(arms),
                    false => walk(Surrogate::new(), arms, &own),
                }
            };
            Box::new(Tiers::new(arms, brief.floor_us, Box::new(inner)))
        }
        "tiers" => Box::new(Tiers::new(arms, brief.floor_us, Box::new(exhaustive))),
        "exhaustive" => exhaustive(arms),
        "random" => walk(Random, arms, brief),
        "climb" => walk(Climb::default(), arms, brief),
        "genetic" => walk(Genetic, arms, brief),
        "evolution" => walk(Evolution, arms, brief),
        "annealing" => walk(Annealing::new(), arms, brief),
        "swarm" => walk(Swarm::default(), arms, brief),
        "surrogate" => walk(Surrogate::new(), arms, brief),
        "halving" => walk(Halving::default(), arms, brief),
        own => return registered::made(own, arms, brief),
    })
}

/// A walk by a rule, behind the defaults and the donors.
fn walk(rule: impl WalkRule + 'static, arms: Vec<Arm>, brief: &Brief) -> Box<dyn Search> {
    let default = |arm: &Arm| Some(arm.candidate(arm.space.at(arm.nth(0)?)?));
    let priors: Vec<Candidate> = brief.priors.iter().take(DONORS).cloned().collect();
    let defaults = if brief.defaults { arms.iter().filter_map(default).collect() } else { Vec::new() };
    Box::new(Walk::new(rule, arms, brief.seed).after(priors, defaults).knowing(&brief.elsewhere))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::candidate::{Outcome, SourceHash};
    use crate::candidates::variant::Priority;
    use crate::measure::Measurement;
    use crate::rejection::Rejection;
    use crate::space::{Axis, Config, Space};
    use std::collections::HashSet;

    pub(crate) fn arm(variant: &str, priority: Priority, configs: usize) -> Arm {
        let space = Space::single().axis(Axis::ints("i", 0..configs as i64));
        Arm::new(variant, SourceHash::of(&[variant]), priority, space)
    }

    pub(crate) fn measured(candidate: Candidate, median_us: f64) -> Trial {
        Trial::new(candidate, Outcome::Measured(Measurement { median_us, ..Measurement::default() }))
    }

    pub(crate) fn failed(candidate: Candidate) -> Trial {
        Trial::new(candidate, Outcome::Rejected(Rejection::Crashed { reason: "test".into() }))
    }

    /// A bowl with walls: 3 axes, a rule, a share of failing configs, one optimum.
    fn bowl() -> Vec<Arm> {
        let space = Space::single()
            .axis(Axis::ints("x", 0..12))
            .axis(Axis::ints("y", 0..12))
            .axis(Axis::choices("mode", &["a", "b", "c"]))
            .constrain("x + y >= 4")
            .unwrap();
        vec![Arm::new("bowl", SourceHash::of(&["bowl"]), Priority::High, space)]
    }

    fn depth(config: &Config) -> Option<f64> {
        let (x, y) = (config.int("x").unwrap() as f64, config.int("y").unwrap() as f64);
        let mode = config.get("mode").unwrap().to_string();
        let step = if mode == "b" { 0.0 } else { 3.0 };
        ((x + y) as i64 % 7 != 5).then_some(5.0 + (x - 7.0).powi(2) + 2.0 * (y - 3.0).powi(2) + step)
    }

    fn walked(name: &str, seed: u64, budget: usize, batch: usize) -> Vec<(Candidate, Option<f64>)> {
        let mut search = named(name, bowl(), &Brief { seed, ..Brief::default() }).unwrap();
        let mut trials = Vec::new();
        while trials.len() < budget {
            let asked = search.ask(batch.min(budget - trials.len()));
            assert!(asked.len() <= batch);
            if asked.is_empty() {
                break;
            }
            for candidate in asked {
                let time = depth(&candidate.config);
                search.tell(&time.map_or_else(|| failed(candidate.clone()), |t| measured(candidate.clone(), t)));
                trials.push((candidate, time));
            }
        }
        trials
    }

    #[test]
    fn every_search_proposes_every_candidate_at_most_once_and_ends() {
        for name in NAMES {
            let arms = vec![arm("a", Priority::High, 7), arm("b", Priority::High, 3), arm("c", Priority::Low, 5)];
            let mut search = named(name, arms, &Brief { seed: 1, ..Brief::default() }).unwrap();
            let mut seen = HashSet::new();
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
        assert!(named("nonesuch", Vec::new(), &Brief::default()).is_none());
    }

    #[test]
    fn every_search_walks_a_whole_space_and_asks_nothing_illegal_and_nothing_twice() {
        let legal: HashSet<Config> = bowl()[0].space.configs().into_iter().collect();
        for name in NAMES {
            for batch in [1, 7] {
                let asked: Vec<Config> = walked(name, 3, usize::MAX, batch).into_iter().map(|t| t.0.config).collect();
                assert_eq!(asked.len(), legal.len(), "{name}");
                assert_eq!(asked.into_iter().collect::<HashSet<_>>(), legal, "{name}");
            }
        }
    }

    #[test]
    fn every_search_is_its_seeds() {
        for name in NAMES {
            assert_eq!(walked(name, 5, 120, 3), walked(name, 5, 120, 3), "{name}");
            let ordered = ["tiers", "exhaustive"].contains(&name);
            assert_eq!(walked(name, 5, 40, 1) == walked(name, 6, 40, 1), ordered, "{name}");
        }
    }

    #[test]
    fn searches_that_learn_find_the_optimum_sooner_than_chance() {
        let trials_until_best = |name: &str| -> usize {
            (0..20).map(|seed| walked(name, seed, 432, 1).iter().position(|t| t.1 == Some(5.0)).unwrap() + 1).sum()
        };
        let chance = trials_until_best("random");
        for name in ["climb", "genetic", "evolution", "annealing", "swarm", "surrogate", "halving"] {
            let own = trials_until_best(name);
            assert!(own * 3 < chance * 2, "{name}: {own} trials, random {chance}");
        }
        assert!(trials_until_best("surrogate") * 4 < chance);
    }

    #[test]
    fn a_whole_record_from_elsewhere_saves_trials_and_one_that_misleads_costs_few() {
        let arms = bowl();
        let trials_until_best = |elsewhere: &dyn Fn(&Config) -> Option<f64>| -> usize {
            let known = arms[0].space.configs().into_iter();
            let known = known.filter_map(|c| Some((arms[0].candidate(c.clone()), elsewhere(&c)?)));
            let known: Vec<(Candidate, f64)> = known.collect();
            let one = |seed| -> usize {
                let brief = Brief { seed, elsewhere: known.clone(), ..Brief::default() };
                let mut search = named("surrogate", bowl(), &brief).unwrap();
                (1..)
                    .find(|_| {
                        let candidate = search.ask(1).remove(0);
                        let time = depth(&candidate.config);
                        search
                            .tell(&time.map_or_else(|| failed(candidate.clone()), |t| measured(candidate.clone(), t)));
                        time == Some(5.0)
                    })
                    .unwrap()
            };
            (0..8).map(one).sum()
        };
        let alone = trials_until_best(&|_| None);
        // Elsewhere the bowl's bottom is a step aside, there are no walls, and everything takes three times as long.
        let aside = |c: &Config| {
            let (x, y) = (c.int("x")? as f64, c.int("y")? as f64);
            let step = if c.get("mode")?.to_string() == "b" { 0.0 } else { 3.0 };
            Some(15.0 + 3.0 * (x - 6.0).powi(2) + 6.0 * (y - 3.0).powi(2) + 3.0 * step)
        };
        assert!(trials_until_best(&aside) < alone, "{} {alone}", trials_until_best(&aside));
        let upside_down = |c: &Config| Some(1e3 / depth(c)?);
        assert!(trials_until_best(&upside_down) <= alone + 8 * 10, "{} {alone}", trials_until_best(&upside_down));
    }

    #[test]
    fn donors_come_first_whatever_they_are_and_illegal_ones_are_passed_over() {
        let arms = bowl();
        let donor = |x: i64, y: i64| arms[0].candidate(Config::new().with("x", x).with("y", y).with("mode", "b"));
        let stranger = Candidate { variant: "nobody".into(), ..donor(7, 3) };
        let priors = vec![donor(0, 0), stranger, donor(7, 4), donor(11, 11)];
        for name in ["auto", "climb", "surrogate"] {
            let mut search = named(name, bowl(), &Brief { priors: priors.clone(), ..Brief::default() }).unwrap();
            assert_eq!(search.ask(2), [donor(7, 4), donor(11, 11)], "{name}");
        }
    }

    #[test]
    fn a_huge_space_is_searched_without_being_listed() {
        let mut space = Space::single();
        for i in 0..20 {
            space = space.axis(Axis::ints(&format!("a{i}"), 0..10));
        }
        let arms = vec![Arm::new("huge", SourceHash::of(&["huge"]), Priority::High, space)];
        for name in NAMES.iter().filter(|n| **n != "tiers") {
            let mut search = named(name, arms.clone(), &Brief::default()).unwrap();
            for _ in 0..40 {
                for candidate in search.ask(1) {
                    let time: i64 = candidate.config.0.keys().filter_map(|axis| candidate.config.int(axis)).sum();
                    search.tell(&measured(candidate, 1.0 + time as f64));
                }
            }
        }
    }
}
