//! Attention on the CPU. The order of the list is the order of ties; the first is the reference.

mod call;
mod flash;
mod products;
mod reference;
mod rows;
mod scratch;
mod setup;
mod softmax;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cpu::Cpu;

use super::Attention;

/// Who may race.
pub fn catalog() -> Catalog<Attention, Cpu> {
    Catalog::new(Arc::new(reference::Reference)).with(Arc::new(flash::Flash))
}
