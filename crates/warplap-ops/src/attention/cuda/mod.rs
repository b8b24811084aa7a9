//! Attention on CUDA. The order of the list is the order of ties; the first is the reference.

mod reference;
mod right;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cuda::Cuda;

use super::Attention;

/// Who may race.
pub fn catalog() -> Catalog<Attention, Cuda> {
    Catalog::new(Arc::new(reference::Reference)).with_oracle(Arc::new(right::Right))
}
