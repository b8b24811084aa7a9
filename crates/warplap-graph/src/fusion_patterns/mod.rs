//! Fusion patterns: one launch in the place of several steps, or other launches than theirs. Each looks back from the
//! last step of what it covers, and gives every set of steps that its launches can stand in for. Adding one is a
//! function and a line of the list.
//!
//! Steps have no sizes here, so that graphs of this package and graphs that torch traces, whose sizes may change, are
//! read by the same patterns. Each lowers its nodes to [`Step`]s, and makes calls of the [`Launch`]es it gets.
//!
//! A pattern need not ask whether others read what it hides, nor whether a step outside lies between two of its own:
//! that is asked in one place for all, [`Look::matches`].

mod attention;
mod behind_norms;
mod elements;
mod launch;
mod losses;
mod norms;
mod products;
mod rope;
mod softmaxes;
mod step;

use std::collections::{BTreeSet, HashMap};

use warplap_ops::gemm::{Activation, Join};

use crate::partition::{Cover, Graph};

pub use launch::{Front, Launch, LaunchKind, NormLaunch, ProductLaunch, Second};
pub use step::{Does, Step};

/// What stands in the place of several steps.
#[derive(Clone, Debug, PartialEq)]
pub struct FusionMatch {
    /// What it is called.
    pub name: String,
    /// Its launches, in an order in which they can run: mostly one.
    pub launches: Vec<Launch>,
    /// The steps it computes, by their places.
    pub steps: BTreeSet<usize>,
    /// Those of them that it leaves in memory.
    pub outputs: BTreeSet<usize>,
}

/// Looks back from a step.
type Pattern = fn(&Look, usize) -> Vec<FusionMatch>;

/// All there are.
const PATTERNS: &[Pattern] = &[
    norms::fronts,
    products::epilogue,
    products::gated,
    behind_norms::product,
    behind_norms::several,
    elements::gated,
    softmaxes::scaled_and_masked,
    attention::written_out,
    losses::projected,
    rope::biased,
    rope::two,
];

/// A graph as patterns see it.
pub struct Look {
    steps: Vec<Step>,
    graph: Graph,
    /// The step that gives a value.
    makers: HashMap<usize, usize>,
    /// The steps that read a value.
    readers: HashMap<usize, Vec<usize>>,
    /// Values that are read after the graph.
    outputs: BTreeSet<usize>,
}

impl Look {
    /// Of steps, each behind those it reads, and the values that callers get.
    pub fn new(steps: Vec<Step>, outputs: impl IntoIterator<Item = usize>) -> Self {
        let (mut makers, mut readers) = (HashMap::new(), HashMap::<usize, Vec<usize>>::new());
        let outputs: BTreeSet<usize> = outputs.into_iter().collect();
        let mut graph = Graph::default();
        for (at, step) in steps.iter().enumerate() {
            let inside: Vec<usize> = step.values().filter_map(|value| makers.get(&value).copied()).collect();
            graph.node(&inside, 0.0, step.outputs.iter().any(|value| outputs.contains(value)));
            step.values().for_each(|value| readers.entry(value).or_default().push(at));
            makers.extend(step.outputs.iter().map(|value| (*value, at)));
        }
        Look { steps, graph, makers, readers, outputs }
    }

    /// Everything that may stand in for steps, the last of which is this one.
    pub fn matches(&self, at: usize) -> Vec<FusionMatch> {
        let all = PATTERNS.iter().flat_map(|pattern| pattern(self, at));
        all.filter(|one| self.graph.check(&one.as_cover()).is_ok()).collect()
    }

    /// The step that gives a value.
    fn made(&self, value: impl Into<Option<usize>>) -> Option<usize> {
        self.makers.get(&value.into()?).copied()
    }

    fn does(&self, at: usize) -> Does {
        self.steps[at].does
    }

    /// A value that a step reads, by its place.
    fn read(&self, at: usize, place: usize) -> Option<usize> {
        self.steps[at].reads.get(place).copied().flatten()
    }

    /// The first value that a step gives; most give no other.
    fn output(&self, at: usize) -> usize {
        self.steps[at].outputs[0]
    }

    /// Steps with those that they stand for, where they are written out.
    fn whole(&self, steps: &[usize]) -> BTreeSet<usize> {
        steps.iter().flat_map(|at| self.steps[*at].includes.iter().copied().chain([*at])).collect()
    }

    /// Whether somebody outside of a set reads what a step gives.
    fn is_read_outside(&self, at: usize, set: &[usize]) -> bool {
        let inside = self.whole(set);
        self.steps[at].outputs.iter().any(|value| {
            self.outputs.contains(value) || self.readers_of(*value).iter().any(|reader| !inside.contains(reader))
        })
    }

    fn readers_of(&self, value: usize) -> &[usize] {
        self.readers.get(&value).map_or(&[], Vec::as_slice)
    }

    /// The activation of a step that does nothing else, and the value it is of.
    fn activation(&self, at: usize) -> Option<(Activation, usize)> {
        match self.does(at) {
            Does::Element { act, join: Join::None } => Some((act, self.read(at, 0)?)),
            _ => None,
        }
    }

    /// How a step joins two values, each as the one that may be activated with the other one behind; of a sum or a
    /// product either may be.
    fn sides(&self, at: usize) -> Vec<(Activation, Join, [usize; 2])> {
        let Does::Element { act, join } = self.does(at) else { return Vec::new() };
        match (act, self.read(at, 0), self.read(at, 1)) {
            (Activation::None, Some(a), Some(b)) if a != b => vec![(act, join, [a, b]), (act, join, [b, a])],
            (_, Some(a), Some(b)) if a != b => vec![(act, join, [a, b])],
            _ => Vec::new(),
        }
    }

    /// The two values of a plain sum.
    fn sum(&self, at: usize) -> Option<[usize; 2]> {
        let plain = Does::Element { act: Activation::None, join: Join::Add };
        (self.does(at) == plain).then_some([self.read(at, 0)?, self.read(at, 1)?])
    }

    /// A match of steps, the last of which is all that it leaves; its one launch has that one's sizes.
    fn fused(&self, name: String, fused: LaunchKind, steps: &[usize], last: usize) -> FusionMatch {
        let launch = Launch { of: last, fused, gives: vec![self.output(last)] };
        FusionMatch { name, launches: vec![launch], steps: self.whole(steps), outputs: [last].into() }
    }
}

impl FusionMatch {
    fn as_cover(&self) -> Cover {
        Cover { kind: 0, nodes: self.steps.clone(), outputs: self.outputs.clone(), seconds: 0.0 }
    }
}

/// What a match is called by what is done, in order; nothing is left out.
fn named(words: &[&str]) -> String {
    words.iter().copied().filter(|word| !["none", ""].contains(word)).collect::<Vec<_>>().join("_")
}
