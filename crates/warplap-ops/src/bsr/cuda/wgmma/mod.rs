//! Kernels on Hopper's tensor cores.

mod wgmma_fill;
mod wgmma_pack;
mod wgmma_swapab;
mod wgmma_thin;
mod wgmma_union;

pub(super) use wgmma_fill::Fill;
pub(super) use wgmma_pack::Pack;
pub(super) use wgmma_swapab::SwapAb;
pub(super) use wgmma_thin::Thin;
pub(super) use wgmma_union::Union;
