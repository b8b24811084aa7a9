//! Fusion boundaries of a small graph of operations: nodes with what each takes by itself, and covers (one kernel in
//! the place of several nodes) with what each takes, come in; the legal partitions, cheapest first, go out.
//!
//! Times are whoever's: measured or predicted. Sums of parts mislead (a kernel hides behind another's loads), so the
//! first few of the list race as whole chains; what is said here is only who is worth that.
//!
//! ```
//! use std::collections::BTreeSet;
//! use warplap_graph::partition::{Cover, Graph};
//!
//! let mut graph = Graph::default();
//! let sum = graph.node(&[], 4e-6, true); // reads nobody here, takes 4 µs by itself, others read it
//! let norm = graph.node(&[sum], 3e-6, true);
//! let both: BTreeSet<usize> = [sum, norm].into();
//! let cover = Cover { kind: 0, nodes: both.clone(), outputs: both, seconds: 2e-6 };
//! let best = &graph.partitions(&[cover], 4)[0];
//! assert_eq!(best.covers, [0]);
//! ```

mod choice;
mod sizes;

use std::collections::BTreeSet;

pub use choice::Partition;
pub use sizes::{Guess, Size, guess};

/// A graph of operations, in an order in which it can be computed.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    nodes: Vec<PartNode>,
}

#[derive(Clone, Debug)]
struct PartNode {
    inputs: Vec<usize>,
    /// What it takes by itself, in seconds.
    alone: f64,
    /// Whether somebody outside of the graph reads it.
    seen: bool,
}

/// One kernel in the place of several nodes.
#[derive(Clone, Debug)]
pub struct Cover {
    /// Covers of one kind are chosen together: the same layer a second time is the same question.
    pub kind: usize,
    /// The nodes that it computes.
    pub nodes: BTreeSet<usize>,
    /// Those of them that it leaves in memory.
    pub outputs: BTreeSet<usize>,
    /// What it takes, in seconds.
    pub seconds: f64,
}

/// Why a cover may not be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Illegal {
    /// It names a node that is not there.
    #[error("node {0} is not in the graph")]
    Unknown(usize),
    /// A node outside of it lies between two of its own.
    #[error("node {0} outside of it needs one of its nodes and is needed by another")]
    NotConvex(usize),
    /// A node that others read is not left in memory.
    #[error("node {0} is read outside of it and not given")]
    Hidden(usize),
}

impl Graph {
    /// Adds a node that reads nodes before it, and takes so many seconds by itself; gives its number.
    ///
    /// # Panics
    /// Where it reads a node that is not before it.
    pub fn node(&mut self, inputs: &[usize], alone: f64, seen: bool) -> usize {
        let number = self.nodes.len();
        assert!(inputs.iter().all(|i| *i < number), "node {number} reads one that is not before it");
        self.nodes.push(PartNode { inputs: inputs.to_vec(), alone, seen });
        number
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Why a cover may not be one, if so.
    pub fn check(&self, cover: &Cover) -> Result<(), Illegal> {
        if let Some(unknown) = cover.nodes.union(&cover.outputs).find(|n| **n >= self.len()) {
            return Err(Illegal::Unknown(*unknown));
        }
        // Nodes outside that need one inside, directly or not. One inside that needs such a node closes a ring.
        let mut after = BTreeSet::new();
        for (number, node) in self.nodes.iter().enumerate() {
            let is_inside = cover.nodes.contains(&number);
            if is_inside && let Some(between) = node.inputs.iter().find(|i| after.contains(*i)) {
                return Err(Illegal::NotConvex(*between));
            }
            if !is_inside {
                let reads = |i: &usize| after.contains(i) || cover.nodes.contains(i);
                if node.inputs.iter().any(reads) {
                    after.insert(number);
                }
                let hidden = |i: &&usize| cover.nodes.contains(*i) && !cover.outputs.contains(*i);
                if let Some(hidden) = node.inputs.iter().find(hidden) {
                    return Err(Illegal::Hidden(*hidden));
                }
            }
        }
        let hidden = cover.nodes.iter().find(|n| self.nodes[**n].seen && !cover.outputs.contains(*n));
        hidden.map_or(Ok(()), |n| Err(Illegal::Hidden(*n)))
    }

    /// The legal partitions by what their parts take, cheapest first, `most` of them at the most; the one without any
    /// cover is always among them. Covers that may not be ones are left out.
    pub fn partitions(&self, covers: &[Cover], most: usize) -> Vec<Partition> {
        choice::cheapest(self, covers, most)
    }

    /// Whether covers that are right one by one can be computed in some order together: two may each wait for the
    /// other.
    fn is_ordered(&self, covers: &[&Cover]) -> bool {
        let count = self.len();
        let mut part: Vec<usize> = (0..count).collect();
        for (i, cover) in covers.iter().enumerate() {
            cover.nodes.iter().for_each(|n| part[*n] = count + i);
        }
        let mut needs: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); count + covers.len()];
        for (number, node) in self.nodes.iter().enumerate() {
            let others = node.inputs.iter().map(|i| part[*i]).filter(|p| *p != part[number]);
            needs[part[number]].extend(others);
        }
        let mut open: BTreeSet<usize> = part.iter().copied().collect();
        while let Some(ready) = open.iter().copied().find(|p| needs[*p].is_disjoint(&open)) {
            open.remove(&ready);
        }
        open.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// x → norm → two products → times → product, and a sum around it.
    fn gated() -> Graph {
        let mut graph = Graph::default();
        let sum = graph.node(&[], 4.0, false);
        let norm = graph.node(&[sum], 3.0, false);
        let gate = graph.node(&[norm], 10.0, false);
        let act = graph.node(&[gate], 2.0, false);
        let up = graph.node(&[norm], 10.0, false);
        let times = graph.node(&[act, up], 2.0, false);
        let down = graph.node(&[times], 10.0, false);
        graph.node(&[down, sum], 4.0, true);
        graph
    }

    fn cover(kind: usize, nodes: &[usize], outputs: &[usize], seconds: f64) -> Cover {
        Cover { kind, nodes: nodes.iter().copied().collect(), outputs: outputs.iter().copied().collect(), seconds }
    }

    #[test]
    fn a_cover_leaves_what_others_read_and_closes_no_ring() {
        let graph = gated();
        assert_eq!(graph.check(&cover(0, &[0, 1], &[0, 1], 1.0)), Ok(()));
        assert_eq!(graph.check(&cover(0, &[0, 1], &[1], 1.0)), Err(Illegal::Hidden(0)));
        assert_eq!(graph.check(&cover(0, &[2, 3, 5], &[5], 1.0)), Ok(()));
        assert_eq!(graph.check(&cover(0, &[1, 5], &[1, 5], 1.0)), Err(Illegal::NotConvex(3)));
        assert_eq!(graph.check(&cover(0, &[6, 7], &[], 1.0)), Err(Illegal::Hidden(7)), "read outside of the graph");
        assert_eq!(graph.check(&cover(0, &[9], &[9], 1.0)), Err(Illegal::Unknown(9)));
    }

    #[test]
    fn two_covers_that_wait_for_each_other_are_not_taken_together() {
        let mut graph = Graph::default();
        let (a, b) = (graph.node(&[], 1.0, false), graph.node(&[], 1.0, false));
        let (c, d) = (graph.node(&[a], 1.0, true), graph.node(&[b], 1.0, true));
        let crossed = [cover(0, &[a, d], &[a, d], 0.1), cover(1, &[b, c], &[b, c], 0.1)];
        assert!(crossed.iter().all(|one| graph.check(one).is_ok()));
        let result = graph.partitions(&crossed, 9);
        assert!(result.iter().all(|p| p.covers.len() < 2), "{result:?}");
        assert_eq!(result.len(), 3);
    }
}
