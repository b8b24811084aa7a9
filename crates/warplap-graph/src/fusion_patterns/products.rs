//! Products with what is done to them, and two products as one.

use warplap_ops::gemm::{Activation, Join, Layout};

use super::{Does, FusionMatch, LaunchKind, Look, ProductLaunch, Second, named};

/// A product, with or without a bias, that is activated, joined with something else, or both.
pub(super) fn epilogue(look: &Look, at: usize) -> Vec<FusionMatch> {
    let mut result = Vec::new();
    if let Some((act, x)) = look.activation(at)
        && let Some(p) = look.made(x)
    {
        result.extend(finished(look, (p, at), act, None, &[p, at]));
    }
    for (own, join, [a, other]) in look.sides(at) {
        let Some(p) = look.made(a) else { continue };
        result.extend(finished(look, (p, at), own, Some((join, other)), &[p, at]));
        // The activation may be a step of its own.
        if own == Activation::None
            && let Some((act, x)) = look.activation(p)
            && let Some(q) = look.made(x)
        {
            result.extend(finished(look, (q, at), act, Some((join, other)), &[q, p, at]));
        }
    }
    result
}

/// A step that is a plain product, as a launch.
pub(super) fn product(look: &Look, at: usize) -> Option<ProductLaunch> {
    let Does::Product(layout) = look.does(at) else { return None };
    let (x, w, bias) = (look.read(at, 0)?, look.read(at, 1)?, look.read(at, 2));
    Some(ProductLaunch { layout, x, w, bias, act: Activation::None, joined: None, second: None, front: None })
}

/// What a product is called.
pub(super) fn word(layout: Layout) -> &'static str {
    if layout == Layout::Col { "linear" } else { "matmul" }
}

fn finished(
    look: &Look,
    (p, last): (usize, usize),
    act: Activation,
    joined: Option<(Join, usize)>,
    steps: &[usize],
) -> Option<FusionMatch> {
    let plain = product(look, p)?;
    // What is joined must be there before.
    if joined.is_some_and(|(_, other)| steps.iter().any(|at| look.steps[*at].outputs.contains(&other))) {
        return None;
    }
    let join = joined.map_or(Join::None, |(join, _)| join);
    let name = named(&[word(plain.layout), act.name(), join.name()]);
    let mut result = look.fused(name, LaunchKind::Product(ProductLaunch { act, joined, ..plain }), steps, last);
    result.launches[0].of = p;
    Some(result)
}

/// Two products of one x, of which one, activated or not, is multiplied with the other: one product with two second
/// factors, or with one whose halves they are.
pub(super) fn gated(look: &Look, at: usize) -> Vec<FusionMatch> {
    let mut result: Vec<FusionMatch> = Vec::new();
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
    result.dedup_by(|b, a| a.steps == b.steps && a.name == b.name);
    result
}

fn paired(look: &Look, act: Activation, [gate, up]: [usize; 2], last: usize, steps: &[usize]) -> Option<FusionMatch> {
    if let (Does::Half(first), Does::Half(second)) = (look.does(gate), look.does(up)) {
        return of_halves(look, act, [(gate, first), (up, second)], last, steps);
    }
    let (one, other) = (product(look, gate)?, product(look, up)?);
    let same = gate != up && (one.layout, one.x) == (other.layout, other.x) && one.bias.or(other.bias).is_none();
    let sizes = |at: usize| (look.steps[at].columns, look.steps[at].read_columns);
    if !same || sizes(gate) != sizes(up) {
        return None;
    }
    let name = named(&[&gate_name(one.layout), act.name()]);
    let launch = ProductLaunch { act, second: Some(Second::Weight(other.w)), ..one };
    let mut result = look.fused(name, LaunchKind::Product(launch), steps, last);
    result.launches[0].of = gate;
    Some(result)
}

fn gate_name(layout: Layout) -> String {
    named(&["gated", word(layout)])
}

/// The same of one product, whose halves along its rows they are.
fn of_halves(
    look: &Look,
    act: Activation,
    [(gate, first), (up, second)]: [(usize, usize); 2],
    last: usize,
    steps: &[usize],
) -> Option<FusionMatch> {
    let whole = look.read(gate, 0).filter(|whole| look.read(up, 0) == Some(*whole) && first != second)?;
    let p = look.made(whole)?;
    let plain = product(look, p).filter(|plain| plain.bias.is_none() && plain.layout == Layout::Col)?;
    let launch = ProductLaunch { act, second: Some(Second::Half(first)), ..plain };
    let name = named(&["gated_halves", act.name()]);
    let mut result = look.fused(name, LaunchKind::Product(launch), &[steps, &[p]].concat(), last);
    result.launches[0].of = p;
    Some(result)
}
