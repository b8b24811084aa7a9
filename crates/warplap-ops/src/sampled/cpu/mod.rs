//! Sampled products on the CPU. The order of the list is the order of ties; the first is the reference.

mod call;
mod dots;
mod reference;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cpu::Cpu;

use super::Sampled;

/// Who may race.
pub fn catalog() -> Catalog<Sampled, Cpu> {
    Catalog::new(Arc::new(reference::Reference)).with(Arc::new(dots::Dots))
}
