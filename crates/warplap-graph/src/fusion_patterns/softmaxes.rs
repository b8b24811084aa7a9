//! Softmax with what comes before it.

use super::{Does, FusionMatch, LaunchKind, Look, named};

/// A softmax that takes a factor, a mask, or both in.
pub(super) struct Form {
    pub(super) steps: Vec<usize>,
    pub(super) x: usize,
    pub(super) mask: Option<usize>,
    pub(super) scale: f64,
}

/// All forms of a softmax, the one by itself first: softmax(scale · x + mask).
pub(super) fn forms(look: &Look, at: usize) -> Vec<Form> {
    let (Does::Softmax { scale }, Some(x)) = (look.does(at), look.read(at, 0)) else { return Vec::new() };
    let mut result = vec![Form { steps: vec![at], x, mask: look.read(at, 1), scale }];
    // What is scaled is x alone: of a sum that is scaled no launch takes both in.
    if scale == 1.0 && result[0].mask.is_none() {
        result.extend(masked(look, at, x));
    }
    let last = result.last().map(|form| (form.x, form.steps.clone(), form.mask));
    if let Some((x, steps, mask)) = last
        && let Some(front) = look.made(x).filter(|_| steps.len() > 1 || mask.is_none())
        && let (Does::Scale(by), Some(x)) = (look.does(front), look.read(front, 0))
    {
        result.push(Form { steps: [&[front][..], &steps].concat(), x, mask, scale: scale * by });
    }
    result
}

/// A sum in front: what is added is the mask. Where both sides are as large, the scaled one is x.
fn masked(look: &Look, at: usize, x: usize) -> Option<Form> {
    let sum = look.made(x)?;
    let [mut x, mut mask] = match look.does(sum) {
        Does::Spread { .. } => [look.read(sum, 0)?, look.read(sum, 1)?],
        _ => look.sum(sum)?,
    };
    let is_scaled = |value: usize| look.made(value).is_some_and(|front| matches!(look.does(front), Does::Scale(_)));
    if look.sum(sum).is_some() && is_scaled(mask) && !is_scaled(x) {
        (x, mask) = (mask, x);
    }
    Some(Form { steps: vec![sum, at], x, mask: Some(mask), scale: 1.0 })
}

/// Every form but the one by itself.
pub(super) fn scaled_and_masked(look: &Look, at: usize) -> Vec<FusionMatch> {
    let all = forms(look, at).into_iter().filter(|form| form.steps.len() > 1);
    let each = all.map(|Form { steps, x, mask, scale }| {
        let masked = if mask.is_some() { "mask" } else { "" };
        let name = named(&["softmax", masked, if scale == 1.0 { "" } else { "scale" }]);
        look.fused(name, LaunchKind::Softmax { x, mask, scale }, &steps, at)
    });
    each.collect()
}
