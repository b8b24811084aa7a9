//! The CUDA device: driver, NVRTC, artifacts, clock. Builds and tests without CUDA; the libraries are found at run time.
//!
//! What comes in is a CUDA source with constants; what goes out is a loaded function, its launches and their times.

pub mod artifact;
mod canary;
mod ceilings;
mod chip;
mod clock;
mod compile;
mod device;
mod driver;
mod error;
mod memory;
mod nvrtc;
mod ptxas;
mod sandbox;

/// Hopper's own instructions as one-line functions: what the kernels include.
pub const HOPPER: (&str, &str) = ("hopper.cuh", include_str!("../cuh/hopper.cuh"));

pub use chip::Chip;
pub use compile::{Cubin, Source};
pub use device::Cuda;
pub use driver::{Function, LaunchShape, Stream, TensorMap, TensorMapSpec};
pub use error::{Class, CudaError};
pub use memory::{Buffer, View, ViewMut};
pub use nvrtc::Compiler;
pub use ptxas::Report;
pub use sandbox::{Ground, serve_if_asked};
