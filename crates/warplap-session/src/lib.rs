//! Races explicit kernel variants on the machine at hand, proves them right, remembers the winner, and from then on
//! dispatches to it at no noticeable cost.
//!
//! ```
//! use warplap::{DType, GemmProblem, Mode, Session};
//!
//! let session = Session::builder().in_memory().mode(Mode::Off).build();
//! let (a, b, mut c) = (vec![1.0f32; 6], vec![2.0f32; 12], vec![0.0f32; 8]);
//! session.gemm(&GemmProblem::new(2, 4, 3, DType::F32), &a[..], &b[..], &mut c[..])?;
//! assert_eq!(c, [6.0; 8]);
//! # Ok::<(), warplap::Error>(())
//! ```
//!
//! Features, all on by default: `cpu` and `cuda` are the variants by device kind; `gemm`, `attention`, `bsr`,
//! `sampled`, `norm`, `qgemm`, `softmax`, `cross_entropy`, `rope` and `gated` are the operations; `graph` is
//! graphs of operations.

pub mod any;
#[cfg(feature = "graph")]
mod graphs;
pub mod own;
mod prepared;
mod session;
#[cfg(feature = "cuda")]
pub mod worker;

pub use prepared::Prepared;
pub use session::{Session, SessionBuilder};

pub use warplap_core as core;
pub use warplap_cpu as cpu;
#[cfg(feature = "cuda")]
pub use warplap_cuda as cuda;
#[cfg(feature = "graph")]
pub use warplap_graph as graph;
pub use warplap_ops as ops;
pub use warplap_report as report;

pub use warplap_core::arg::Arg;
pub use warplap_core::bucket::Bucket;
pub use warplap_core::catalog::Raced;
pub use warplap_core::dtype::DType;
pub use warplap_core::engine::{How, Tuned, Tuner};
pub use warplap_core::error::Error;
pub use warplap_core::op::Op;
pub use warplap_core::settings::{Budget, Mode, Settings, Stop};
pub use warplap_cpu::Cpu;
#[cfg(feature = "cuda")]
pub use warplap_cuda::Cuda;
pub use warplap_ops::exports::*;

/// The README's program compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
