//! A norm's gradients on the CPU. The order of the list is the order of ties; the first is the reference.

mod call;
mod reference;
mod rows;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cpu::Cpu;

use super::NormGrad;

/// Who may race.
pub fn catalog() -> Catalog<NormGrad, Cpu> {
    Catalog::new(Arc::new(reference::Reference)).with(Arc::new(rows::Rows))
}
