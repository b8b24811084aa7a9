//! What the plans of a mask's gradient share: who shares a mask.

use crate::attention::AttentionProblem;
use crate::attention_mask_grad::sharing;
use crate::cuda::plan::{Argument, int};

/// Heads that have masks of their own, and batches and heads that share one: the last parameters of kernels.
pub(super) fn shares(p: &AttentionProblem) -> [Argument; 3] {
    let [batches, heads] = sharing(p);
    [p.masks()[1], batches, heads].map(int)
}
