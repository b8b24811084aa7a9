//! Attention on CUDA. The order of the list is the order of ties; the first is the reference.

mod cudnn;
mod cudnn_graph;
mod flash_lazy;
mod flash_mma;
mod flash_split;
mod flash_wgmma;
pub(crate) mod listed;
pub(crate) mod plan;
mod reference;
pub(crate) mod right;
mod wgmma_setting;

use std::sync::Arc;

use warplap_core::catalog::Catalog;
use warplap_cuda::Cuda;

use super::{Attention, AttentionProblem, SLOTS};
use crate::cuda::own::Own;
use crate::cuda::plan::CudaKernelSpec;

/// The own kernels, in the order of ties.
const TWINS: [&dyn CudaKernelSpec<AttentionProblem>; 5] = [
    &reference::Reference,
    &flash_lazy::FlashLazy,
    &flash_wgmma::FlashWgmma,
    &flash_split::FlashSplit,
    &flash_mma::FlashMma,
];

/// Who may race.
pub fn catalog() -> Catalog<Attention, Cuda> {
    let own = |twin| Arc::new(Own::<Attention, &dyn CudaKernelSpec<AttentionProblem>, SLOTS>::new(twin));
    let [reference, others @ ..] = TWINS;
    let first = Catalog::new(own(reference)).with_oracle(Arc::new(right::Right));
    let all = others.into_iter().fold(first, |catalog, twin| catalog.with(own(twin)));
    all.with(Arc::new(cudnn::Cudnn))
}

#[cfg(test)]
mod compile_tests;

#[cfg(test)]
mod twin_tests;
