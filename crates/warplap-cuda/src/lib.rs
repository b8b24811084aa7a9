//! The CUDA device: driver, NVRTC, clock. Builds and tests without CUDA; the libraries are found at run time.
//!
//! What comes in is a CUDA source with constants; what goes out is a loaded function, its launches and their times.

mod ceilings;
mod chip;
mod clock;
mod compare;
mod compile;
mod context_health;
mod cublaslt;
mod cudnn;
mod cuh;
mod cusparse;
mod device;
mod device_hooks;
mod doubles;
mod driver;
mod error;
mod finder;
mod matmul_spec;
mod memory;
mod neutral;
mod nvml;
mod nvrtc;
mod own;
mod ptxas;
mod times;
mod workspaces;

/// The kernels that the device runs for itself (comparisons and what they need, ceilings, the clock), for a test that
/// compiles them.
#[doc(hidden)]
pub fn own_kernels(chip: &Chip) -> Vec<Source> {
    let proofs = compare::sources().into_iter().chain(doubles::sources()).chain(times::sources());
    proofs.chain(ceilings::sources(chip)).chain([neutral::source()]).collect()
}

pub use chip::Chip;
pub use compile::{Cubin, Source};
pub use cublaslt::{Lt, Matmul};
pub use cudnn::{Dnn, DnnGraph, DnnMode, DnnNode, DnnPlace, DnnPlan, DnnReduction, DnnTensor, DnnTensorSpec};
pub use cuh::{
    ACTIVATED, AMPERE, BLOCK, CODES, ELEMENT, ENTROPY, EPILOGUE, FACTOR, HOPPER, PACKED, PAIR, PHILOX, QUANT,
    QUANT_HOPPER, RMS, ROPE, ROWS, SCALED, SMALL_BLOCKS, SOFT, SQUARES, dtype_code,
};
pub use cuh::{ATTENTION, ATTENTION_AMPERE, ATTENTION_GRAD, ATTENTION_HOPPER};
pub use cusparse::{Blocks, Sparse, Spmm, SpmmAt, SpmmSpec};
pub use device::Cuda;
pub use device_hooks::{Ground, serve_if_asked};
pub use driver::{Function, LaunchShape, Layers, Stream, TensorMap, TensorMapSpec};
pub use error::CudaError;
pub use matmul_spec::{BytesSpec, MatmulActivation, MatmulEpilogue, MatmulScale, MatmulSpec, MatrixSpec};
pub use memory::{Buffer, View, ViewMut};
pub use nvml::Readings;
pub use nvrtc::Compiler;
pub use own::OwnSource;
pub use ptxas::Report;
pub use warplap_worker::Class;
/// Compiled kernels in their folder.
pub use warplap_worker::artifact::Artifacts;
pub use workspaces::Workspaces;
