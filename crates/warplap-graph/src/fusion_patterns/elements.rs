//! What is done element by element.

use warplap_ops::gemm::Activation;

use super::{FusionMatch, LaunchKind, Look, named};

/// An activation that is joined with something else.
pub(super) fn gated(look: &Look, at: usize) -> Vec<FusionMatch> {
    let mut result = Vec::new();
    for (own, join, [side, b]) in look.sides(at) {
        let Some(front) = look.made(side).filter(|_| own == Activation::None) else { continue };
        let Some((act, a)) = look.activation(front) else { continue };
        let name = named(&[act.name(), join.name()]);
        result.push(look.fused(name, LaunchKind::Element { act, join, a, b }, &[front, at], at));
    }
    result
}
