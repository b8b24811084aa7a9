//! Attention that is written out: two products with a softmax between them.

use super::{Does, FusionMatch, LaunchKind, Look, softmaxes};

/// softmax(scale · q · kᵀ + mask) · v.
pub(super) fn written_out(look: &Look, at: usize) -> Vec<FusionMatch> {
    let (Does::HeadProduct, Some(weights), Some(v)) = (look.does(at), look.read(at, 0), look.read(at, 1)) else {
        return Vec::new();
    };
    let Some(softmax) = look.made(weights) else { return Vec::new() };
    let all = softmaxes::forms(look, softmax).into_iter();
    all.filter_map(|form| {
        let scores = look.made(form.x).filter(|scores| look.does(*scores) == Does::HeadProduct)?;
        let (q, turned) = (look.read(scores, 0)?, look.made(look.read(scores, 1)?)?);
        let k = look.read(turned, 0).filter(|_| look.does(turned) == Does::Turned)?;
        let mut steps = [&form.steps[..], &[scores, at]].concat();
        if !look.is_read_outside(turned, &[scores]) {
            steps.push(turned);
        }
        let fused = LaunchKind::Attention { qkv: [q, k, v], mask: form.mask, scale: form.scale };
        Some(look.fused("attention".into(), fused, &steps, at))
    })
    .collect()
}
