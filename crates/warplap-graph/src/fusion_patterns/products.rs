//! Products with what is done to them, and two products as one.

use warplap_ops::gemm::{Activation, Join, Layout, slot};

use super::{Look, Match, named};
use crate::node::{Call, Node, What, product};
use crate::task::Task;

/// A product, with or without a bias, that is activated, joined with something else, or both.
pub(super) fn epilogue(look: &Look<'_>, at: usize) -> Vec<Match> {
    let mut result = Vec::new();
    if let Some((act, x)) = look.activation(at)
        && let Some(p) = look.made(x)
    {
        result.extend(finished(look, (p, at), act, None, &[p, at]));
    }
    for (own, join, [a, other]) in look.sides(at) {
        let Some(p) = look.made(a) else { continue };
        result.extend(finished(look, (p, at), own, Some((join, other)), &[p, at]));
        // The activation may be a node of its own.
        if own == Activation::None
            && let Some((act, x)) = look.activation(p)
            && let Some(q) = look.made(x)
        {
            result.extend(finished(look, (q, at), act, Some((join, other)), &[q, p, at]));
        }
    }
    result
}

/// The layout and bias of a product.
fn facts(node: &Node) -> Option<(Layout, bool)> {
    if let What::Product { w, bias } = node.what { Some((w, bias)) } else { None }
}

fn word(layout: Layout) -> &'static str {
    if layout == Layout::Col { "linear" } else { "matmul" }
}

fn finished(
    look: &Look<'_>,
    (p, last): (usize, usize),
    act: Activation,
    joined: Option<(Join, usize)>,
    nodes: &[usize],
) -> Option<Match> {
    let node = &look.nodes[p];
    let (w, bias) = facts(node)?;
    // What is joined must be there before.
    if joined.is_some_and(|(_, other)| nodes.iter().any(|n| look.nodes[*n].outputs.contains(&other))) {
        return None;
    }
    let join = joined.map_or(Join::None, |(join, _)| join);
    let problem = product(node, w, bias).with_epilogue(bias, act).with_join(join);
    let outputs = look.nodes[last].first_output();
    let mut bound = vec![(slot::A, node.reads[0]), (slot::B, node.reads[1]), (slot::C, outputs)];
    bound.extend(bias.then(|| (slot::BIAS, node.reads[2])));
    bound.extend(joined.map(|(_, other)| (slot::JOINED, other)));
    let name = named(&[word(w), act.name(), join.name()]);
    Some(look.pattern_match(name, vec![Call::new(Task::Gemm(problem), &bound)], nodes, last))
}

/// Two products of one x, of which one, activated or not, is multiplied with the other: one product with two second
/// factors.
pub(super) fn pair(look: &Look<'_>, at: usize) -> Vec<Match> {
    let mut result: Vec<Match> = Vec::new();
    for (own, join, [a, b]) in look.sides(at) {
        let (Some(gate), Some(up)) = (look.made(a), look.made(b)) else { continue };
        if join != Join::Mul {
            continue;
        }
        result.extend(paired(look, own, [gate, up], at, &[gate, up, at]));
        if own == Activation::None
            && let Some((act, x)) = look.activation(gate)
            && let Some(q) = look.made(x)
        {
            result.extend(paired(look, act, [q, up], at, &[q, gate, up, at]));
        }
    }
    // Of two plain products either may stand first: one is enough.
    result.dedup_by(|b, a| a.nodes == b.nodes && a.tasks().eq(b.tasks()));
    result
}

fn paired(look: &Look<'_>, act: Activation, [gate, up]: [usize; 2], last: usize, nodes: &[usize]) -> Option<Match> {
    let (one, other) = (&look.nodes[gate], &look.nodes[up]);
    let same = gate != up && facts(one)? == facts(other)? && one.reads[0] == other.reads[0];
    let (w, bias) = facts(one)?;
    if !same || bias || (one.rows, one.n, one.k) != (other.rows, other.n, other.k) {
        return None;
    }
    let problem = product(one, w, false).with_epilogue(false, act).with_pair(true);
    let outputs = look.nodes[last].first_output();
    let bound = [(slot::A, one.reads[0]), (slot::B, one.reads[1]), (slot::B2, other.reads[1]), (slot::C, outputs)];
    let name = named(&["pair", act.name()]);
    Some(look.pattern_match(name, vec![Call::new(Task::Gemm(problem), &bound)], nodes, last))
}
