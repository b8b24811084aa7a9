//! The CUDA device: driver, NVRTC, artifacts, clock. Builds and tests without CUDA; the libraries are found at run time.
//!
//! What comes in is a CUDA source with constants; what goes out is a loaded function, its launches and their times.

pub mod artifact;
mod canary;
mod ceilings;
mod chip;
mod clock;
mod compare;
mod compile;
mod cublaslt;
mod cusparse;
mod device;
mod driver;
mod error;
mod finder;
mod memory;
mod nvml;
mod nvrtc;
mod own;
mod ptxas;
mod sandbox;

/// Hopper's own instructions as one-line functions: what the kernels include.
pub const HOPPER: (&str, &str) = ("hopper.cuh", include_str!("../cuh/hopper.cuh"));

/// The constant `DTYPE` that kernels are compiled with.
pub fn dtype_code(dtype: warplap_core::dtype::DType) -> i64 {
    match dtype {
        warplap_core::dtype::DType::F16 => 0,
        warplap_core::dtype::DType::Bf16 => 1,
        _ => 2,
    }
}

/// What every chip from sm_80 on has: asynchronous copies, ldmatrix, mma.sync.
pub const AMPERE: (&str, &str) = ("ampere.cuh", include_str!("../cuh/ampere.cuh"));

/// Elements of any type as float32.
pub const ELEMENT: (&str, &str) = ("element.cuh", include_str!("../cuh/element.cuh"));

/// Bias and activation before a product is stored.
pub const EPILOGUE: (&str, &str) = ("epilogue.cuh", include_str!("../cuh/epilogue.cuh"));

/// Alpha and beta before a block-sparse product is stored.
pub const SCALED: (&str, &str) = ("scaled.cuh", include_str!("../cuh/scaled.cuh"));

/// How small blocks lie in shared memory, and lists of the block columns that a group of rows uses.
pub const SMALL_BLOCKS: (&str, &str) = ("small_blocks.cuh", include_str!("../cuh/small_blocks.cuh"));

/// The kernels that the device runs for itself (comparisons, ceilings), for a test that compiles them.
#[doc(hidden)]
pub fn own_kernels(chip: &Chip) -> Vec<Source> {
    compare::sources().into_iter().chain(ceilings::sources(chip)).collect()
}

pub use chip::Chip;
pub use compile::{Cubin, Source};
pub use cublaslt::{Lt, Matmul, MatmulSpec, MatrixSpec};
pub use cusparse::{Blocks, Sparse, Spmm, SpmmAt, SpmmSpec};
pub use device::Cuda;
pub use driver::{Function, LaunchShape, Stream, TensorMap, TensorMapSpec};
pub use error::{Class, CudaError};
pub use memory::{Buffer, View, ViewMut};
pub use nvml::Readings;
pub use nvrtc::Compiler;
pub use own::OwnSource;
pub use ptxas::Report;
pub use sandbox::{Ground, serve_if_asked};
