//! Dense products on the CPU. The order of the list is the order of ties; the first is the reference.

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
mod batched;
mod blas;
mod direct;
mod gemv;
pub(crate) mod kernel;
mod library;
mod normed;
mod packed;
mod paired;
mod reference;
mod skinny;
mod threads;
mod tiled;

use warplap_core::catalog::Catalog;
use warplap_cpu::Cpu;

use super::Gemm;
use batched::batched;

/// Who may race.
pub fn catalog() -> Catalog<Gemm, Cpu> {
    let catalog = Catalog::new(batched(reference::Reference))
        .with(batched(tiled::Tiled))
        .with(batched(packed::Packed))
        .with(batched(direct::Direct))
        .with(batched(skinny::Skinny))
        .with(batched(gemv::Gemv))
        .with(batched(library::Library))
        .with(batched(blas::Blas::here()));
    #[cfg(target_arch = "x86_64")]
    let catalog = catalog.with(batched(amx::AmxTiles));
    catalog
}
