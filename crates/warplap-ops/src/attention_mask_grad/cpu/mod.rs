//! The gradient of attention's mask on the CPU. The order of the list is the order of ties; the first is the reference.

mod places;
mod reference;
mod tiles;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cpu::Cpu;

use super::AttentionMaskGrad;

/// Who may race.
pub fn catalog() -> Catalog<AttentionMaskGrad, Cpu> {
    Catalog::new(Arc::new(reference::Reference)).with(Arc::new(tiles::Tiles))
}
