//! Dense products on the CPU. The order of the list is the order of ties; the first is the reference.

#[cfg(target_arch = "x86_64")]
mod amx;
mod direct;
mod gemv;
pub(crate) mod kernel;
mod library;
mod packed;
mod reference;
mod skinny;
mod threads;
mod tiled;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cpu::Cpu;

use super::Gemm;

/// Who may race.
pub fn catalog() -> Catalog<Gemm, Cpu> {
    let catalog = Catalog::new(Arc::new(reference::Reference))
        .with(Arc::new(tiled::Tiled))
        .with(Arc::new(packed::Packed))
        .with(Arc::new(direct::Direct))
        .with(Arc::new(skinny::Skinny))
        .with(Arc::new(gemv::Gemv))
        .with(Arc::new(library::Library));
    #[cfg(target_arch = "x86_64")]
    let catalog = catalog.with(Arc::new(amx::AmxTiles));
    catalog
}
