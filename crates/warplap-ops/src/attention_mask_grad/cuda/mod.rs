//! The gradient of attention's mask on CUDA. The order of the list is the order of ties; the first is the reference.

mod mask_mma;
mod plan;
mod reference;
mod right;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cuda::Cuda;

use super::{AttentionMaskGrad, AttentionMaskGradProblem, SLOTS};
use crate::cuda::own::Own;
use crate::cuda::plan::CudaKernelSpec;

/// The own kernels, in the order of ties.
const TWINS: [&dyn CudaKernelSpec<AttentionMaskGradProblem>; 2] = [&reference::Reference, &mask_mma::MaskMma];

/// Who may race.
pub fn catalog() -> Catalog<AttentionMaskGrad, Cuda> {
    let own =
        |twin| Arc::new(Own::<AttentionMaskGrad, &dyn CudaKernelSpec<AttentionMaskGradProblem>, SLOTS>::new(twin));
    let [reference, others @ ..] = TWINS;
    let first = Catalog::new(own(reference)).with_oracle(Arc::new(right::Right));
    others.into_iter().fold(first, |catalog, twin| catalog.with(own(twin)))
}

#[cfg(test)]
mod twin_tests;
