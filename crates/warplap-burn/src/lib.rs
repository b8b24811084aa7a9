//! Block-sparse layers and tuned attention, products and norms on [Burn](https://burn.dev)'s own tensors.
//!
//! ```
//! use burn::tensor::{Device, Distribution, Tensor};
//!
//! # warplap_burn::configure(warplap_burn::Setup::in_memory().budget(0.2));
//! let device = Device::flex();
//! let a = Tensor::<2>::random([64, 96], Distribution::Default, &device);
//! let b = Tensor::<2>::random([96, 32], Distribution::Default, &device);
//! let c = warplap_burn::matmul(a.clone(), b.clone());
//! let error = (c - a.matmul(b)).abs().max().into_scalar::<f32>();
//! assert!(error < 1e-4);
//! ```
//!
//! The first call of a problem races the variants there are (ours, and Burn's own), proves each right before it is
//! timed, and keeps the winner; later calls go to it directly. Functions panic on shapes that do not fit, as Burn's do;
//! each has a `try_` form that says what is wrong instead.
//!
//! On the CPU (Burn's `flex` backend) kernels work on the tensors' own memory. On NVIDIA GPUs (feature `cuda`) they get
//! the tensors' own pointers. Other backends are refused by name. A tensor whose strides no kernel takes is made
//! contiguous first, which is the only copy there is: [`copies`] counts them.

mod autodiff;
mod backends;
mod call;
mod extension;
mod op_dispatcher;
mod ops;
mod setup;
mod tensor;

pub use ops::activation::Activation;
pub use ops::attention::{AttentionOptions, attention, try_attention};
pub use ops::bsr::BsrTensor;
pub use ops::gemm::{linear, matmul, try_linear, try_matmul};
pub use ops::norm::{NormKind, NormOptions, norm, norm_residual, try_norm, try_norm_residual};
pub use ops::sparse_linear::{SparseLinear, SparseLinearConfig};
pub use setup::{Setup, configure};
pub use tensor::adapter::Slotted;
pub use tensor::copies::copies;
pub use tensor::tensors::run;

/// The library behind it, for what goes beyond: stores, records, searches.
pub use warplap;
pub use warplap::Error;

/// The README's program compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
