//! Softmax with what comes before it.

use warplap_ops::gemm::{Activation, Join};
use warplap_ops::softmax::slot;

use super::{Look, Match, named};
use crate::node::{Call, What};
use crate::task::Task;

/// A sum and its softmax: what is added is the mask.
pub(super) fn masked(look: &Look<'_>, at: usize) -> Vec<Match> {
    let node = &look.nodes[at];
    // What is scaled is x alone: a mask that was added before has to be as large as it is.
    let What::Softmax(mut problem) = node.what else { return Vec::new() };
    let Some(sum) = look.made(node.reads[0]).filter(|_| problem.mask == 0 && problem.scale() == 1.0) else {
        return Vec::new();
    };
    let front = &look.nodes[sum];
    if front.what != (What::Element { act: Activation::None, join: Join::Add }) {
        return Vec::new();
    }
    problem.mask = problem.rows;
    let bound = [(slot::X, front.reads[0]), (slot::MASK, front.reads[1]), (slot::Y, node.first_output())];
    let call = Call::new(Task::Softmax(problem), &bound);
    vec![look.pattern_match(named(&["add", "softmax"]), vec![call], &[sum, at], at)]
}
