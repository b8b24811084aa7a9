//! The CUDA device: driver, NVRTC, clock. Builds and tests without CUDA; the libraries are found at run time.
//!
//! What comes in is a CUDA source with constants; what goes out is a loaded function, its launches and their times.

mod chip;
mod compare;
mod compile;
mod context_health;
mod device;
mod device_hooks;
mod doubles;
mod driver;
mod error;
mod libraries;
mod measure;
mod memory;
mod workspaces;

/// The kernels that the device runs for itself (comparisons and what they need, ceilings, the clock), for a test that
/// compiles them.
#[doc(hidden)]
pub fn own_kernels(chip: &Chip) -> Vec<Source> {
    let proofs = compare::sources().into_iter().chain(doubles::sources()).chain(measure::times::sources());
    proofs.chain(measure::ceilings::sources(chip)).chain([measure::neutral::source()]).collect()
}

pub use chip::Chip;
pub use compile::cuh::{
    ACTIVATED, AMPERE, BLOCK, CODES, ELEMENT, ENTROPY, EPILOGUE, FACTOR, HOPPER, PACKED, PAIR, PHILOX, QUANT,
    QUANT_HOPPER, RMS, ROPE, ROWS, SCALED, SMALL_BLOCKS, SOFT, SQUARES, dtype_code,
};
pub use compile::cuh::{ATTENTION, ATTENTION_AMPERE, ATTENTION_GRAD, ATTENTION_HOPPER};
pub use compile::nvrtc::Compiler;
pub use compile::own::OwnSource;
pub use compile::ptxas::Report;
pub use compile::{Cubin, Source};
pub use device::Cuda;
pub use device_hooks::{Ground, serve_if_asked};
pub use driver::{Function, LaunchShape, Layers, Stream, TensorMap, TensorMapSpec};
pub use error::CudaError;
pub use libraries::cublaslt::{Lt, Matmul};
pub use libraries::cudnn::{
    Dnn, DnnGraph, DnnMode, DnnNode, DnnPlace, DnnPlan, DnnReduction, DnnTensor, DnnTensorSpec,
};
pub use libraries::cusparse::{Blocks, Sparse, Spmm, SpmmAt, SpmmSpec};
pub use libraries::matmul_spec::{BytesSpec, MatmulActivation, MatmulEpilogue, MatmulScale, MatmulSpec, MatrixSpec};
pub use measure::nvml::Readings;
pub use memory::{Buffer, View, ViewMut};
pub use warplap_worker::Class;
/// Compiled kernels in their folder.
pub use warplap_worker::artifact::Artifacts;
pub use workspaces::Workspaces;
