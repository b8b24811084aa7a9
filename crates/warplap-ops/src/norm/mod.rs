//! Normalisation of rows, with or without a bias, dropout and a residual in front: s = dropout(x + before) + residual,
//! y = norm(s) * weight + bias. Which elements are dropped follows from their places and a seed (`philox.rs`).
//!
//! y is the norm of the sum as it is in f32, not of the sum as it was rounded to the type of the buffers. In half types
//! the two differ by about one rounding, and both are right: a kernel may do either.
//!
//! With `quant` y is written as codes of 8 bits with one factor a row, which the row's largest magnitude gives: numbers
//! are codes times factor, as `qgemm` takes them. Nothing is rounded before it is a code, the sum neither. Right is
//! y / factor before it is rounded, and a code may be half a step from it: between two codes either is right.

mod answer;
#[cfg(feature = "cpu")]
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod edges;
mod op;
mod quant;

pub(crate) use op::ALIGN;
pub use op::{Kind, Norm, NormProblem, SLOTS, slot};
pub use quant::Quant;

#[cfg(feature = "cuda")]
use answer::{Reach, sum_tolerance, tolerances};
