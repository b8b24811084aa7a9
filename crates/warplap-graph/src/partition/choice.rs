//! Which kinds of covers are taken: the cheapest choices come first, and none takes two covers that share a node.

use std::collections::BTreeMap;

use super::{Cover, Graph};

/// A legal choice of covers; nodes in none of them are computed by themselves.
#[derive(Clone, Debug, PartialEq)]
pub struct Partition {
    /// The kinds that are taken, in order.
    pub kinds: Vec<usize>,
    /// Their covers, by their places in the list that was given.
    pub covers: Vec<usize>,
    /// What all parts take together, in seconds.
    pub seconds: f64,
}

/// All covers of one kind.
struct Kind {
    number: usize,
    covers: Vec<usize>,
    /// What taking it saves.
    saves: f64,
}

pub(super) fn cheapest(graph: &Graph, covers: &[Cover], most: usize) -> Vec<Partition> {
    let mut kinds: BTreeMap<usize, Kind> = BTreeMap::new();
    for (place, cover) in covers.iter().enumerate() {
        let kind = kinds.entry(cover.kind).or_insert(Kind { number: cover.kind, covers: vec![], saves: 0.0 });
        // Where two of a kind share nodes, the first is taken: chains of equal links have no better one.
        let is_free = kind.covers.iter().all(|other| covers[*other].nodes.is_disjoint(&cover.nodes));
        if is_free && graph.check(cover).is_ok() {
            kind.covers.push(place);
            kind.saves += cover.nodes.iter().map(|n| graph.nodes[*n].alone).sum::<f64>() - cover.seconds;
        }
    }
    let mut kinds: Vec<Kind> = kinds.into_values().filter(|kind| !kind.covers.is_empty()).collect();
    kinds.sort_by(|a, b| b.saves.total_cmp(&a.saves).then(a.number.cmp(&b.number)));
    // What the kinds from one on could still save.
    let mut rest = vec![0.0; kinds.len() + 1];
    for i in (0..kinds.len()).rev() {
        rest[i] = rest[i + 1] + kinds[i].saves.max(0.0);
    }
    let whole: f64 = graph.nodes.iter().map(|n| n.alone).sum();
    let mut search = Search { graph, covers, kinds: &kinds, rest: &rest, most: most.max(1), result: vec![] };
    search.go(0, &mut vec![], whole);
    let mut result = search.result;
    if !result.iter().any(|p| p.kinds.is_empty()) {
        result.truncate(most.max(1) - 1);
        result.push(Partition { kinds: vec![], covers: vec![], seconds: whole });
    }
    result
}

struct Search<'a> {
    graph: &'a Graph,
    covers: &'a [Cover],
    kinds: &'a [Kind],
    rest: &'a [f64],
    most: usize,
    /// In order of what they take.
    result: Vec<Partition>,
}

impl Search<'_> {
    fn go(&mut self, at: usize, taken: &mut Vec<usize>, seconds: f64) {
        // Nothing below here can be among the cheapest: what is left does not save enough.
        let is_full = self.result.len() == self.most;
        if is_full && self.result.last().is_some_and(|worst| seconds - self.rest[at] >= worst.seconds) {
            return;
        }
        if at == self.kinds.len() {
            return self.keep(taken, seconds);
        }
        if self.is_free(at, taken) {
            taken.push(at);
            self.go(at + 1, taken, seconds - self.kinds[at].saves);
            taken.pop();
        }
        self.go(at + 1, taken, seconds);
    }

    fn is_free(&self, at: usize, taken: &[usize]) -> bool {
        let nodes = |kind: &usize| self.kinds[*kind].covers.iter().map(|c| &self.covers[*c].nodes);
        nodes(&at).all(|one| taken.iter().flat_map(nodes).all(|other| one.is_disjoint(other)))
    }

    fn keep(&mut self, taken: &[usize], seconds: f64) {
        let mut covers: Vec<usize> = taken.iter().flat_map(|kind| self.kinds[*kind].covers.clone()).collect();
        covers.sort_unstable();
        if !self.graph.is_ordered(&covers.iter().map(|c| &self.covers[*c]).collect::<Vec<_>>()) {
            return;
        }
        let mut kinds: Vec<usize> = taken.iter().map(|kind| self.kinds[*kind].number).collect();
        kinds.sort_unstable();
        let place = self.result.partition_point(|p| p.seconds <= seconds);
        self.result.insert(place, Partition { kinds, covers, seconds });
        self.result.truncate(self.most);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn cover(kind: usize, nodes: &[usize], seconds: f64) -> Cover {
        let nodes: BTreeSet<usize> = nodes.iter().copied().collect();
        Cover { kind, outputs: nodes.clone(), nodes, seconds }
    }

    fn chain(alone: &[f64]) -> Graph {
        let mut graph = Graph::default();
        for (i, seconds) in alone.iter().enumerate() {
            let before = i.checked_sub(1).map_or(vec![], |b| vec![b]);
            graph.node(&before, *seconds, i + 1 == alone.len());
        }
        graph
    }

    #[test]
    fn the_cheapest_come_first_and_covers_that_overlap_are_not_taken_together() {
        let graph = chain(&[4.0, 3.0, 10.0, 2.0]);
        let covers = [cover(0, &[0, 1], 5.0), cover(1, &[1, 2], 8.0), cover(2, &[2, 3], 11.0)];
        let result = graph.partitions(&covers, 9);
        let text: Vec<(Vec<usize>, f64)> = result.iter().map(|p| (p.kinds.clone(), p.seconds)).collect();
        let expected = vec![(vec![1], 14.0), (vec![0, 2], 16.0), (vec![0], 17.0), (vec![2], 18.0), (vec![], 19.0)];
        assert_eq!(text, expected);
    }

    #[test]
    fn a_short_list_keeps_the_one_without_covers() {
        let graph = chain(&[4.0, 3.0, 10.0, 2.0]);
        let covers = [cover(0, &[0, 1], 5.0), cover(1, &[1, 2], 8.0), cover(2, &[2, 3], 11.0)];
        let kinds: Vec<Vec<usize>> = graph.partitions(&covers, 2).into_iter().map(|p| p.kinds).collect();
        assert_eq!(kinds, [vec![1], vec![]]);
        assert_eq!(graph.partitions(&covers, 0).len(), 1);
    }

    #[test]
    fn what_costs_more_than_its_nodes_stands_behind_what_is_left_alone() {
        let graph = chain(&[4.0, 3.0]);
        let result = graph.partitions(&[cover(0, &[0, 1], 9.0)], 9);
        assert_eq!(result.iter().map(|p| p.kinds.len()).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn the_same_layer_a_hundred_times_is_one_question() {
        let graph = chain(&[1.0; 400]);
        let covers: Vec<Cover> = (0..400).map(|i| cover(i % 4, &[i], 0.9 + 0.2 * (i % 4) as f64)).collect();
        let result = graph.partitions(&covers, 99);
        assert_eq!(result.len(), 16);
        assert_eq!(result[0].kinds, [0]);
        assert!((result[0].seconds - 390.0).abs() < 1e-9);
    }

    #[test]
    fn many_kinds_are_searched_in_no_time() {
        let graph = chain(&[1.0; 60]);
        let covers: Vec<Cover> = (0..60).map(|i| cover(i, &[i], 0.5 + 0.01 * i as f64)).collect();
        let result = graph.partitions(&covers, 8);
        assert_eq!(result.len(), 8);
        assert!(result.windows(2).all(|pair| pair[0].seconds <= pair[1].seconds));
    }
}
