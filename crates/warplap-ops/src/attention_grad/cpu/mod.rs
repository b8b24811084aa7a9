//! Attention's gradients on the CPU. The order of the list is the order of ties; the first is the reference.

pub(crate) mod call;
pub(crate) mod reference;
pub(crate) mod task_inputs;
mod tiles;
mod weigh;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cpu::Cpu;

use super::AttentionGrad;

/// Who may race.
pub fn catalog() -> Catalog<AttentionGrad, Cpu> {
    Catalog::new(Arc::new(reference::Reference)).with(Arc::new(tiles::Tiles))
}
