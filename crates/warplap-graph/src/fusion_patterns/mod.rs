//! Covers: one launch in the place of several nodes, or other launches than theirs. Each template looks back from the
//! last node of what it covers, and gives every set of nodes that its launches can stand in for. Adding one is a
//! function and a line of the list.
//!
//! A template need not ask whether others read what it hides, nor whether a node outside lies between two of its own:
//! that is asked in one place for all, `warplap_core::graph`.

mod behind_norms;
mod elements;
mod norms;
mod products;
mod rope;
mod softmaxes;

use std::collections::BTreeSet;

use warplap_ops::gemm::{Activation, Join};

use super::node::{Call, Node, What};
use super::task::Task;

/// What stands in the place of several nodes.
#[derive(Clone, Debug)]
pub(super) struct Match {
    /// What it is called: with the problems of its launches, the kind of cover.
    pub(super) name: String,
    /// Its launches: mostly one.
    pub(super) calls: Vec<Call>,
    /// The nodes it computes, by their places.
    pub(super) nodes: BTreeSet<usize>,
    /// Those of them that it leaves in memory.
    pub(super) outputs: BTreeSet<usize>,
}

impl Match {
    /// What its launches do.
    pub(super) fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.calls.iter().map(|call| &call.task)
    }
}

/// Looks back from a node.
pub(super) type Template = fn(&Look<'_>, usize) -> Vec<Match>;

/// All there are.
pub(super) const PATTERNS: &[Template] = &[
    norms::add_norm,
    products::epilogue,
    products::pair,
    behind_norms::product,
    elements::gated,
    softmaxes::masked,
    rope::biased,
];

/// What a template sees of a graph.
#[derive(Clone, Copy)]
pub(super) struct Look<'a> {
    pub(super) nodes: &'a [Node],
    /// The values that calls are given.
    pub(super) outputs: &'a [(String, usize)],
}

impl Look<'_> {
    /// The node that gives a value.
    pub(super) fn made(&self, value: usize) -> Option<usize> {
        self.nodes.iter().position(|node| node.outputs.contains(&value))
    }

    /// Whether somebody outside of a set reads what a node gives.
    pub(super) fn is_read_outside(&self, node: usize, set: &[usize]) -> bool {
        let outputs = &self.nodes[node].outputs;
        let mut others = self.nodes.iter().enumerate().filter(|(at, _)| !set.contains(at));
        let is_output = self.outputs.iter().any(|(_, output)| outputs.contains(output));
        is_output || others.any(|(_, node)| node.reads.iter().any(|value| outputs.contains(value)))
    }

    /// The activation of a node that does nothing else, and the value it is of.
    pub(super) fn activation(&self, node: usize) -> Option<(Activation, usize)> {
        match self.nodes[node].what {
            What::Element { act, join: Join::None } => Some((act, self.nodes[node].reads[0])),
            _ => None,
        }
    }

    /// How a node joins two values, each as the one that may be activated with the other one behind; of a sum or a
    /// product either may be.
    pub(super) fn sides(&self, node: usize) -> Vec<(Activation, Join, [usize; 2])> {
        let What::Element { act, join } = self.nodes[node].what else { return Vec::new() };
        match (act, self.nodes[node].reads[..].as_ref()) {
            (Activation::None, [a, b]) if a != b => vec![(act, join, [*a, *b]), (act, join, [*b, *a])],
            (_, [a, b]) if a != b => vec![(act, join, [*a, *b])],
            _ => Vec::new(),
        }
    }

    /// A cover of nodes, the last of which is all that it leaves.
    pub(super) fn pattern_match(&self, name: String, calls: Vec<Call>, nodes: &[usize], last: usize) -> Match {
        Match { name, calls, nodes: nodes.iter().copied().collect(), outputs: [last].into() }
    }
}

/// What a cover is called by what is done, in order; nothing is left out.
fn named(words: &[&str]) -> String {
    words.iter().copied().filter(|word| *word != "none").collect::<Vec<_>>().join("_")
}
