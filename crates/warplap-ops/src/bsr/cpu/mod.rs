//! Block-sparse products on the CPU. The order of the list is the order of ties; the first is the reference.

mod columns;
mod dense;
mod finish;
mod matrix;
mod pack;
mod panels;
mod reference;
mod rows;
mod scratch;
mod setting;
mod split;
mod thin;
mod tile;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cpu::Cpu;

use super::Bsr;

/// Who may race.
pub fn catalog() -> Catalog<Bsr, Cpu> {
    Catalog::new(Arc::new(reference::Reference))
        .with(Arc::new(rows::Rows))
        .with(Arc::new(panels::Panels))
        .with(Arc::new(columns::Columns))
        .with(Arc::new(split::Split))
        .with(Arc::new(thin::Thin))
        .with(Arc::new(dense::Dense))
}
