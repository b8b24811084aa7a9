//! The plan of a graph: what it computes, by itself and by covers, and the partitions that are legal. Nothing here knows
//! a device.

use std::collections::BTreeSet;

use crate::partition::{Cover, Graph};
use warplap_core::candidate::SourceHash;

use super::node::{Call, Node, Value, alone};
use super::sized::{Match, Nodes, Template};

/// Partitions that may race at all; of a small graph these are all there are.
const MOST: usize = 64;

/// What stands for the partition without covers.
pub(super) const APART: &str = "apart";

/// Everything about a graph that does not hang on a device.
pub(super) struct Plan {
    pub(super) values: Vec<Value>,
    pub(super) inputs: Vec<(String, usize)>,
    pub(super) nodes: Vec<Node>,
    pub(super) outputs: Vec<(String, usize)>,
    /// The launch of each node by itself.
    pub(super) alone: Vec<Call>,
    /// The legal covers.
    pub(super) covers: Vec<Match>,
    /// The kind of each cover, by its place among the names of kinds.
    kinds: Vec<usize>,
    names: Vec<String>,
    /// The legal partitions, the one without covers first.
    pub(super) partitions: Vec<NamedPartition>,
}

/// A choice of covers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NamedPartition {
    /// The names of its kinds with `+` between them; records name it so.
    pub(super) id: String,
    /// Its covers, by their places.
    pub(super) covers: Vec<usize>,
}

impl Plan {
    pub(super) fn new(
        values: Vec<Value>,
        inputs: Vec<(String, usize)>,
        nodes: Vec<Node>,
        outputs: Vec<(String, usize)>,
        templates: &[Template],
    ) -> Self {
        let look = Nodes::new(&nodes, &outputs);
        let all = (0..nodes.len()).flat_map(|at| templates.iter().map(move |template| (at, template)));
        let result: Vec<Match> = all.flat_map(|(at, template)| template(&look, at)).collect();
        let calls = nodes.iter().map(alone).collect();
        let (covers, kinds, names, partitions) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut plan = Plan { values, inputs, nodes, outputs, alone: calls, covers, kinds, names, partitions };
        let graph = plan.graph(&vec![1.0; plan.nodes.len()]);
        plan.covers = result.into_iter().filter(|f| graph.check(&as_cover(f, 0, 0.0)).is_ok()).collect();
        plan.name_kinds();
        // Nothing is measured yet: who covers more comes first.
        let fewer = vec![0.5; plan.covers.len()];
        let all = graph.partitions(&plan.as_covers(&fewer), MOST);
        plan.partitions = all.into_iter().map(|p| plan.partition(p.covers)).collect();
        plan.partitions.sort_by_key(|p| !p.covers.is_empty());
        plan
    }

    /// Covers of one name and one problem are of one kind; further kinds of a name have a number.
    fn name_kinds(&mut self) {
        let mut known: Vec<(String, String)> = Vec::new();
        for result in &self.covers {
            let texts: Vec<String> = result.tasks().map(|task| task.text()).collect();
            let key = (result.name.clone(), texts.join(";"));
            let at = known.iter().position(|other| *other == key).unwrap_or(known.len());
            if at == known.len() {
                let before = known.iter().filter(|(name, _)| *name == result.name).count();
                let number = if before == 0 { String::new() } else { format!("_{}", before + 1) };
                self.names.push(format!("{}{number}", result.name));
                known.push(key);
            }
            self.kinds.push(at);
        }
    }

    /// The name of a cover's kind.
    pub(super) fn kind(&self, cover: usize) -> &str {
        &self.names[self.kinds[cover]]
    }

    /// The partition without covers.
    pub(super) fn unfused(&self) -> NamedPartition {
        self.partition(Vec::new())
    }

    fn partition(&self, covers: Vec<usize>) -> NamedPartition {
        let kinds: BTreeSet<usize> = covers.iter().map(|cover| self.kinds[*cover]).collect();
        let id = kinds.iter().map(|kind| self.names[*kind].as_str()).collect::<Vec<_>>().join("+");
        NamedPartition { id: if covers.is_empty() { APART.into() } else { id }, covers }
    }

    /// The graph by what each node takes by itself.
    fn graph(&self, alone: &[f64]) -> Graph {
        let mut graph = Graph::default();
        for (node, seconds) in self.nodes.iter().zip(alone) {
            let place = |value: &usize| self.nodes.iter().position(|other| other.outputs.contains(value));
            let reads: Vec<usize> = node.reads.iter().filter_map(place).collect();
            let seen = self.outputs.iter().any(|(_, value)| node.outputs.contains(value));
            graph.node(&reads, *seconds, seen);
        }
        graph
    }

    fn as_covers(&self, seconds: &[f64]) -> Vec<Cover> {
        let covers = self.covers.iter().zip(&self.kinds).zip(seconds);
        covers.map(|((result, kind), seconds)| as_cover(result, *kind, *seconds)).collect()
    }

    /// The partitions that may race by what nodes and covers take together, cheapest first.
    pub(super) fn cheapest(&self, alone: &[f64], covers: &[f64]) -> Vec<(String, f64)> {
        let best = self.graph(alone).partitions(&self.as_covers(covers), MOST);
        let named = best.into_iter().map(|p| (self.partition(p.covers).id, p.seconds));
        named.filter(|(id, _)| self.partitions.iter().any(|known| known.id == *id)).collect()
    }

    /// The launches of a partition, in an order in which they can run.
    pub(super) fn calls(&self, partition: &NamedPartition) -> Vec<&Call> {
        let covers = partition.covers.iter().map(|cover| &self.covers[*cover]);
        let taken: BTreeSet<usize> = covers.clone().flat_map(|result| result.nodes.iter().copied()).collect();
        let rest = self.alone.iter().enumerate().filter(|(at, _)| !taken.contains(at)).map(|(_, call)| call);
        let mut open: Vec<&Call> = covers.flat_map(|result| &result.calls).chain(rest).collect();
        let mut ready = Vec::new();
        while let Some(next) = open.iter().position(|call| {
            let waits = |value: &usize| open.iter().any(|other| other.writes().contains(value));
            !call.reads().iter().any(waits)
        }) {
            ready.push(open.remove(next));
        }
        ready
    }

    /// A hash of the structure and of what each partition covers: names mean the same in graphs that have the same.
    pub(super) fn choices(&self) -> String {
        let nodes = |cover: &usize| format!("{:?}", self.covers[*cover].nodes);
        let message =
            |p: &NamedPartition| format!("{} {}", p.id, p.covers.iter().map(nodes).collect::<Vec<_>>().join(" "));
        let mut all: Vec<String> = self.partitions.iter().map(message).collect();
        all.sort();
        SourceHash::of(&[&self.structure(), &all.join(";")]).0
    }

    /// A hash of what is computed of what: nodes, who reads whom, types and outputs, without sizes.
    pub(super) fn structure(&self) -> String {
        let node = |n: &Node| format!("{} {:?} {:?} {}", n.what.form(), n.reads, n.outputs, n.dtype);
        let nodes: Vec<String> = self.nodes.iter().map(node).collect();
        let ends = |all: &[(String, usize)]| format!("{:?}", all.iter().map(|(_, value)| *value).collect::<Vec<_>>());
        SourceHash::of(&[&nodes.join(";"), &ends(&self.inputs), &ends(&self.outputs)]).0
    }
}

fn as_cover(result: &Match, kind: usize, seconds: f64) -> Cover {
    Cover { kind, nodes: result.nodes.clone(), outputs: result.outputs.clone(), seconds }
}
