//! Losses with what comes before them.

use warplap_ops::gemm::Layout;

use super::{Does, FusionMatch, LaunchKind, Look, products};

/// The losses of a projection, whose logits nobody else reads.
pub(super) fn projected(look: &Look, at: usize) -> Vec<FusionMatch> {
    let Some(front) = look.read(at, 0).filter(|_| look.does(at) == Does::Loss).and_then(|logits| look.made(logits))
    else {
        return Vec::new();
    };
    let Some(plain) = products::product(look, front).filter(|plain| plain.layout == Layout::Col) else {
        return Vec::new();
    };
    let fused = LaunchKind::ProjectedLoss { loss: at, x: plain.x, w: plain.w, bias: plain.bias };
    vec![look.fused("linear_cross_entropy".into(), fused, &[front, at], at)]
}
