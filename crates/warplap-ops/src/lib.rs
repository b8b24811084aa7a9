//! What is raced: one folder an operation, one file a variant, one ordered list a device.

pub mod attention;
pub mod bsr;
mod cuda;
pub mod gemm;
mod right;
pub mod sampled;
mod typed;
