//! Attention's gradients on CUDA. The order of the list is the order of ties; the first is the reference.

mod grad_mma;
mod grad_wgmma;
pub(crate) mod plan;
mod reference;
pub(crate) mod right;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cuda::Cuda;

use super::{AttentionGrad, AttentionGradProblem, SLOTS};
use crate::cuda::own::Own;
use crate::cuda::plan::CudaKernelSpec;

/// The own kernels, in the order of ties.
const TWINS: [&dyn CudaKernelSpec<AttentionGradProblem>; 3] =
    [&reference::Reference, &grad_wgmma::GradWgmma, &grad_mma::GradMma];

/// Who may race.
pub fn catalog() -> Catalog<AttentionGrad, Cuda> {
    let own = |twin| Arc::new(Own::<AttentionGrad, &dyn CudaKernelSpec<AttentionGradProblem>, SLOTS>::new(twin));
    let [reference, others @ ..] = TWINS;
    let first = Catalog::new(own(reference)).with_oracle(Arc::new(right::Right));
    others.into_iter().fold(first, |catalog, twin| catalog.with(own(twin)))
}

#[cfg(test)]
mod twin_tests;
