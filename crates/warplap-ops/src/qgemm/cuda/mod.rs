//! Products of 8-bit numbers on CUDA. The order of the list is the order of ties; the first is the reference.

mod cublaslt;
mod plan;
mod reference;
mod right;
mod wgmma;
mod wgmma_few;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cuda::Cuda;

use super::{Qgemm, QgemmProblem, SLOTS};
use crate::cuda::own::Own;
use crate::cuda::plan::CudaKernelSpec;

/// The own kernels, in the order of ties.
const TWINS: [&dyn CudaKernelSpec<QgemmProblem>; 3] = [&reference::Reference, &wgmma::Wgmma, &wgmma_few::WgmmaFew];

/// Who may race: the reference, the library, then the other kernels.
pub fn catalog() -> Catalog<Qgemm, Cuda> {
    let own = |twin| Arc::new(Own::<Qgemm, &dyn CudaKernelSpec<QgemmProblem>, SLOTS>::new(twin));
    let [reference, others @ ..] = TWINS;
    let first = Catalog::new(own(reference)).with(Arc::new(cublaslt::Cublaslt));
    others.into_iter().fold(first.with_oracle(Arc::new(right::Right)), |catalog, twin| catalog.with(own(twin)))
}

#[cfg(test)]
mod compile_tests;
