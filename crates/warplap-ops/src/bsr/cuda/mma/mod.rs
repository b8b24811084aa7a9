//! Kernels on the tensor cores that every chip from sm_80 on has, and for thin B.

mod mma_rows;
mod mma_tf32;
mod thin_mma;
mod thin_rows;

pub(super) use mma_rows::MmaRows;
pub(super) use mma_tf32::MmaTf32;
pub(super) use thin_mma::ThinMma;
pub(super) use thin_rows::ThinRows;
