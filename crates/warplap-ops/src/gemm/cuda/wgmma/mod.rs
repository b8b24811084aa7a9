//! Kernels on Hopper's tensor cores.

mod wgmma_coop;
mod wgmma_pingpong;
mod wgmma_splitk;
mod wgmma_streamk;
mod wgmma_swapab;
mod wgmma_tf32;

pub(super) use wgmma_coop::Coop;
pub(super) use wgmma_pingpong::Pingpong;
pub(super) use wgmma_splitk::Splitk;
pub(super) use wgmma_streamk::Streamk;
pub(super) use wgmma_swapab::Swapab;
pub(super) use wgmma_tf32::WgmmaTf32;
