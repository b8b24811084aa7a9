//! Softmax with what comes before it.

use warplap_ops::gemm::{Activation, Join};
use warplap_ops::softmax::{SoftmaxProblem, slot};

use super::{Found, Look, named};
use crate::graph::node::{Call, What};
use crate::graph::task::Task;

/// A sum and its softmax: what is added is the mask.
pub(super) fn masked(look: &Look<'_>, at: usize) -> Vec<Found> {
    let node = &look.nodes[at];
    let Some(sum) = look.made(node.reads[0]).filter(|_| node.what == What::Softmax) else { return Vec::new() };
    let front = &look.nodes[sum];
    if front.what != (What::Element { act: Activation::None, join: Join::Add }) {
        return Vec::new();
    }
    let mut problem = SoftmaxProblem::new(node.rows, node.n, node.dtype);
    problem.mask = node.rows;
    let bound = [(slot::X, front.reads[0]), (slot::MASK, front.reads[1]), (slot::Y, node.gives)];
    let call = Call::new(Task::Softmax(problem), &bound);
    vec![look.found(named(&["add", "softmax"]), call, &[sum, at], at)]
}
