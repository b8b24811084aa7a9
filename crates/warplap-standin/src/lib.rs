//! A stand-in for NVIDIA's driver, compiler and management libraries, for tests on machines without a GPU.
//!
//! Device memory is host memory; a "compiled image" is the source text; what a kernel does is said by the line of its
//! text that begins with `//@` (see `kernel.rs`). `WARPLAP_STANDIN` plants faults into calls: `cuMemAlloc_v2:3:2` gives
//! code 2 at the third such call of a process, `cuInit:1:hang` never returns, `cuLaunchKernelEx:0:die` aborts at any.
//! Loaded through `WARPLAP_CUDA_DRIVER`, `WARPLAP_NVRTC` and `WARPLAP_NVML`.
#![allow(
    missing_docs,
    unreachable_pub,
    private_interfaces,
    clippy::missing_safety_doc,
    reason = "the functions are those of cuda.h, nvrtc.h and nvml.h"
)]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "every pointer is the caller's word, as in the libraries it stands for"
)]

mod compare;
mod driver;
mod graph;
mod kernel;
mod memory;
mod nvml;
mod nvrtc;
mod perturb;
mod state;
