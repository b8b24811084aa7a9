//! The CUDA device: driver, NVRTC, artifacts, clock. Builds and tests without CUDA; the libraries are found at run time.
//!
//! What comes in is a CUDA source with constants; what goes out is a loaded function, its launches and their times.

pub mod artifact;
mod ceilings;
mod chip;
mod clock;
mod compile;
mod cublaslt;
mod device;
mod driver;
mod error;
mod finder;
mod memory;
mod nvrtc;
mod ptxas;

/// Hopper's own instructions as one-line functions: what the kernels include.
pub const HOPPER: (&str, &str) = ("hopper.cuh", include_str!("../cuh/hopper.cuh"));

/// What every chip from sm_80 on has: asynchronous copies, ldmatrix, mma.sync.
pub const AMPERE: (&str, &str) = ("ampere.cuh", include_str!("../cuh/ampere.cuh"));

/// Elements of any type as float32.
pub const ELEMENT: (&str, &str) = ("element.cuh", include_str!("../cuh/element.cuh"));

/// Bias and activation before a product is stored.
pub const EPILOGUE: (&str, &str) = ("epilogue.cuh", include_str!("../cuh/epilogue.cuh"));

pub use chip::Chip;
pub use compile::{Cubin, Source};
pub use cublaslt::{Lt, Matmul, MatmulSpec, MatrixSpec};
pub use device::Cuda;
pub use driver::{Function, LaunchShape, Stream, TensorMap, TensorMapSpec};
pub use error::{Class, CudaError};
pub use memory::{Buffer, View, ViewMut};
pub use nvrtc::Compiler;
pub use ptxas::Report;
