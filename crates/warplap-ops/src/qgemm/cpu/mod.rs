//! Products of 8-bit numbers on the CPU. The order of the list is the order of ties; the first is the reference.

#[cfg(target_arch = "x86_64")]
mod amx;
mod call;
mod dots;
mod reference;
mod threads;
mod widened;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cpu::Cpu;

use super::Qgemm;

/// Who may race.
pub fn catalog() -> Catalog<Qgemm, Cpu> {
    let catalog =
        Catalog::new(Arc::new(reference::Reference)).with(Arc::new(dots::Dots)).with(Arc::new(widened::Widened));
    #[cfg(target_arch = "x86_64")]
    let catalog = catalog.with(Arc::new(amx::AmxBytes));
    catalog
}
