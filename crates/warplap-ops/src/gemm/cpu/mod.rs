//! Dense products on the CPU. The order of the list is the order of ties; the first is the reference.

mod library;
mod reference;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cpu::Cpu;

use super::Gemm;

/// Who may race.
pub fn catalog() -> Catalog<Gemm, Cpu> {
    Catalog::new(Arc::new(reference::Reference)).with(Arc::new(library::Library))
}
