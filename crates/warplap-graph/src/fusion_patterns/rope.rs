//! Turns with what comes before them.

use warplap_ops::gemm::{Layout, slot as of_product};
use warplap_ops::rope::slot;

use super::{Look, Match, named};
use crate::node::{Call, What, product, turned};
use crate::task::Task;

/// A product with a bias, and the turn of its heads: the turn adds the bias. Still two launches, but the product's is a
/// plain one. Between them lies what the product's node would give, without its bias.
pub(super) fn biased(look: &Look<'_>, at: usize) -> Vec<Match> {
    let node = &look.nodes[at];
    let What::Rope(problem) = node.what else { return Vec::new() };
    let Some(front) = look.made(node.reads[0]).filter(|_| problem.hk == 0 && !problem.bias) else { return Vec::new() };
    let of = &look.nodes[front];
    let What::Product { w, bias: true } = of.what else { return Vec::new() };
    // A reshape between the two may make other rows of the same numbers.
    if of.n != problem.h * problem.d {
        return Vec::new();
    }
    let between = of.first_output();
    let plain = [(of_product::A, of.reads[0]), (of_product::B, of.reads[1]), (of_product::C, between)];
    let mut bound = turned(node, &problem);
    bound.push((slot::BIAS, of.reads[2]));
    let mut with = problem;
    with.bias = true;
    let word = if w == Layout::Col { "linear" } else { "matmul" };
    let first = Call::new(Task::Gemm(product(of, w, false)), &plain);
    let calls = vec![first, Call::new(Task::Rope(with), &bound)];
    vec![look.pattern_match(named(&[word, "bias_rope"]), calls, &[front, at], at)]
}
