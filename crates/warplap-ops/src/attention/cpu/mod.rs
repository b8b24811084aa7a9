//! Attention on the CPU. The order of the list is the order of ties; the first is the reference.

#[cfg(target_arch = "x86_64")]
mod amx;
mod blocks;
mod call;
mod decode;
mod flash;
mod library;
#[cfg(target_arch = "x86_64")]
mod pairs;
mod products;
mod reference;
mod rows;
mod scratch;
mod setup;
mod softmax;
mod streams;
mod strip;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cpu::Cpu;

use super::Attention;

/// Who may race.
pub fn catalog() -> Catalog<Attention, Cpu> {
    let catalog = Catalog::new(Arc::new(reference::Reference))
        .with(Arc::new(flash::Flash))
        .with(Arc::new(strip::Strip))
        .with(Arc::new(decode::Decode))
        .with(Arc::new(library::Library));
    #[cfg(target_arch = "x86_64")]
    let catalog = catalog.with(Arc::new(amx::Amx));
    catalog
}
