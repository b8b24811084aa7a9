//! Block-sparse products on CUDA. The order of the list is the order of ties; the first is the reference.

mod reference;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_core::error::Error;
use warplap_cuda::Cuda;

use super::{Bsr, BsrArgs};

/// Who may race.
pub fn catalog() -> Catalog<Bsr, Cuda> {
    Catalog::new(Arc::new(reference::Reference))
}

impl BsrArgs<'_, Cuda> {
    /// Checks that the buffers have the problem's types and lengths. The indices lie in device memory.
    pub fn check(&self) -> Result<(), Error> {
        self.check_spans()
    }
}
