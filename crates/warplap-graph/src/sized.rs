//! Fusion patterns over a graph of this package: nodes become steps, and launches get their nodes' sizes.

use std::collections::BTreeSet;

use warplap_ops::gemm::{self, GemmProblem, Join, Rms};
use warplap_ops::norm::{self, NormProblem};
use warplap_ops::rope::{self, Positions, RopeProblem};
use warplap_ops::{gated, softmax};

use super::fusion_patterns::{Does, FusionMatch, Launch, LaunchKind, Look, NormLaunch, ProductLaunch, Second, Step};
use super::node::{Call, Node, What, columns, element, norm, product, turned};
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
pub(super) type Template = fn(&Nodes<'_>, usize) -> Vec<Match>;

/// A graph's nodes, and how patterns see them.
pub(super) struct Nodes<'a> {
    nodes: &'a [Node],
    look: Look,
}

impl<'a> Nodes<'a> {
    pub(super) fn new(nodes: &'a [Node], outputs: &[(String, usize)]) -> Self {
        let steps = nodes.iter().map(step).collect();
        Nodes { nodes, look: Look::new(steps, outputs.iter().map(|(_, value)| *value)) }
    }
}

/// All matches that end with a node.
pub(super) fn fused(graph: &Nodes<'_>, at: usize) -> Vec<Match> {
    let sized = |one: FusionMatch| {
        let calls = one.launches.iter().map(|launch| call(graph.nodes, launch)).collect::<Option<Vec<_>>>()?;
        Some(Match { name: one.name, calls, nodes: one.steps, outputs: one.outputs })
    };
    graph.look.matches(at).into_iter().filter_map(sized).collect()
}

/// A node without its sizes.
fn step(node: &Node) -> Step {
    let mut values = node.reads.iter().copied();
    let mut next = |has: bool| if has { values.next() } else { None };
    let (does, reads) = match node.what {
        What::Product { w, bias } => (Does::Product(w), vec![next(true), next(true), next(bias)]),
        What::Element { act, join } => (Does::Element { act, join }, vec![next(true), next(join != Join::None)]),
        What::Norm { kind, weight, bias, eps } => {
            (Does::Norm { kind, eps: eps.into() }, vec![next(true), next(weight), next(bias)])
        }
        What::Softmax(p) => (Does::Softmax { scale: p.scale().into() }, vec![next(true), next(p.mask > 0)]),
        What::Attention(_) => (Does::Attention, vec![next(true), next(true), next(true)]),
        What::Rope(p) => {
            let has = [true, p.hk > 0, true, true, p.positions != Positions::Rows, p.bias];
            (Does::Rope { form: 0 }, has.map(&mut next).to_vec())
        }
    };
    let read_columns = if let What::Rope(p) = node.what { p.h * p.d } else { node.k };
    Step { does, reads, outputs: node.outputs.clone(), columns: node.n, read_columns, includes: Vec::new() }
}

/// A launch with sizes; `None` where no problem says it.
fn call(nodes: &[Node], launch: &Launch) -> Option<Call> {
    let node = &nodes[launch.of];
    let gives = launch.gives[0];
    match &launch.fused {
        LaunchKind::Product(of) => product_call(node, of, gives),
        LaunchKind::Element { act, join, a, b } => {
            use gated::slot;
            let bound = [(slot::A, *a), (slot::B, *b), (slot::Y, gives)];
            Some(Call::new(Task::Gated(element(node, *act, *join)), &bound))
        }
        LaunchKind::Norm(of) => norm_call(node, of, launch),
        LaunchKind::Softmax { x, mask: Some(mask), scale: 1.0 } => {
            use softmax::slot;
            let What::Softmax(mut problem) = node.what else { return None };
            problem.mask = problem.rows;
            Some(Call::new(Task::Softmax(problem), &[(slot::X, *x), (slot::MASK, *mask), (slot::Y, gives)]))
        }
        LaunchKind::Rope { first, bias } => rope_call(nodes, node, *first, *bias),
        // Nodes of graphs here are not written out, and have no losses.
        LaunchKind::Softmax { .. } | LaunchKind::Attention { .. } | LaunchKind::ProjectedLoss { .. } => None,
    }
}

fn product_call(node: &Node, of: &ProductLaunch, gives: usize) -> Option<Call> {
    use gemm::slot;
    let mut problem: GemmProblem = product(node, of.layout, false).with_epilogue(of.bias.is_some(), of.act);
    let mut bound = vec![(slot::A, of.x), (slot::B, of.w), (slot::C, gives)];
    bound.extend(of.bias.map(|bias| (slot::BIAS, bias)));
    if let Some((join, other)) = of.joined {
        problem = problem.with_join(join);
        bound.push((slot::JOINED, other));
    }
    if let Some(second) = of.second {
        let Second::Weight(other) = second else { return None };
        problem = problem.with_pair(true);
        bound.push((slot::B2, other));
    }
    if let Some(front) = of.front {
        // A weight would have to be folded: nobody knows here whether weights stay as they are.
        front.gain.is_none().then_some(())?;
        problem = problem.with_rms(Some(Rms::new(front.eps as f32)?));
    }
    Some(Call::new(Task::Gemm(problem), &bound))
}

fn norm_call(node: &Node, of: &NormLaunch, launch: &Launch) -> Option<Call> {
    use norm::slot;
    // Nothing is dropped here, and lines are biases of products.
    let residual = of.residual.filter(|_| of.before.is_none() && of.dropout == 0.0)?;
    let has = [of.weight.is_some(), of.bias.is_some()];
    let mut problem: NormProblem = norm(node, of.kind, has, of.eps as f32);
    (problem.residual, problem.sum) = (true, of.writes_sum);
    let mut bound = vec![(slot::X, of.x), (slot::RESIDUAL, residual), (slot::Y, launch.gives[0])];
    bound.extend(columns(node, has));
    bound.extend(launch.gives.get(1).map(|sum| (slot::SUM, *sum)));
    Some(Call::new(Task::Norm(problem), &bound))
}

fn rope_call(nodes: &[Node], node: &Node, first: Option<usize>, bias: Option<usize>) -> Option<Call> {
    use rope::slot;
    let What::Rope(own) = node.what else { return None };
    let mut bound = turned(node, &own);
    if let Some(bias) = bias {
        bound.push((slot::BIAS, bias));
        return Some(Call::new(Task::Rope(RopeProblem { bias: true, ..own }), &bound));
    }
    let before = &nodes[first?];
    let What::Rope(other) = before.what else { return None };
    // All but heads is alike; the one before comes first.
    let alike = RopeProblem { h: own.h, ld: own.ld, ..other } == own && own.plain == 0;
    let both = alike.then_some(RopeProblem { hk: own.h, ldk: own.ld, ..other })?;
    bound.retain(|(slot, _)| ![slot::X, slot::Y].contains(slot));
    bound.extend([(slot::X, before.reads[0]), (slot::Y, before.first_output())]);
    bound.extend([(slot::K, node.reads[0]), (slot::YK, node.first_output())]);
    Some(Call::new(Task::Rope(both), &bound))
}
