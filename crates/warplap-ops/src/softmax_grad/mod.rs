//! Softmax backward: dx = scale · y ∘ (dy − Σ dy ∘ y) from y and the gradient of y, row by row.

mod answer;
#[cfg(feature = "cpu")]
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod edges;
mod op;

pub(crate) use op::SLOTS;
pub use op::{SoftmaxGrad, SoftmaxGradProblem, slot};

#[cfg(feature = "cuda")]
use answer::{Reach, tolerance};
