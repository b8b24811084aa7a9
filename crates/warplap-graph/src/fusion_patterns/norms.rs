//! Norms with what comes before them.

use warplap_ops::gemm::{Activation, Join};
use warplap_ops::norm::slot;

use super::{Look, Match, named};
use crate::node::{Call, What, columns, norm};
use crate::task::Task;

/// A sum and its norm. The sum is kept where somebody else reads it.
pub(super) fn add_norm(look: &Look<'_>, at: usize) -> Vec<Match> {
    let node = &look.nodes[at];
    let What::Norm { kind, weight, bias, eps } = node.what else { return Vec::new() };
    let Some(sum) = look.made(node.reads[0]) else { return Vec::new() };
    let front = &look.nodes[sum];
    if front.what != (What::Element { act: Activation::None, join: Join::Add }) {
        return Vec::new();
    }
    let nodes = [sum, at];
    let kept = look.is_read_outside(sum, &nodes);
    let mut problem = norm(node, kind, [weight, bias], eps);
    (problem.residual, problem.sum) = (true, kept);
    let mut bound = vec![(slot::X, front.reads[0]), (slot::RESIDUAL, front.reads[1]), (slot::Y, node.first_output())];
    bound.extend(columns(node, [weight, bias]));
    bound.extend(kept.then_some((slot::SUM, front.first_output())));
    let call = Call::new(Task::Norm(problem), &bound);
    let mut result = look.pattern_match(named(&["add", "norm"]), vec![call], &nodes, at);
    result.outputs.extend(kept.then_some(sum));
    vec![result]
}
