//! What is done element by element.

use warplap_ops::gated::slot;
use warplap_ops::gemm::Activation;

use super::{Look, Match, named};
use crate::node::{Call, element};
use crate::task::Task;

/// An activation that is joined with something else.
pub(super) fn gated(look: &Look<'_>, at: usize) -> Vec<Match> {
    let mut result = Vec::new();
    for (own, join, [a, other]) in look.sides(at) {
        let Some(front) = look.made(a).filter(|_| own == Activation::None) else { continue };
        let Some((act, x)) = look.activation(front) else { continue };
        let node = &look.nodes[at];
        let bound = [(slot::A, x), (slot::B, other), (slot::Y, node.first_output())];
        let call = Call::new(Task::Gated(element(node, act, join)), &bound);
        result.push(look.pattern_match(named(&[act.name(), join.name()]), vec![call], &[front, at], at));
    }
    result
}
