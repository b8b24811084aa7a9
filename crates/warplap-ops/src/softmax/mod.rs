//! Softmax of rows: y = exp(s) / Σ exp(s) with s = scale · x + mask. The mask may be shared by rows, and is then never
//! written out; it may hold -inf. A row of which nothing is left is not a number, as torch has it.

mod answer;
#[cfg(feature = "cpu")]
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod edges;
mod op;

pub(crate) use answer::GROWTH;
pub(crate) use op::{ALIGN, SLOTS};
pub use op::{Softmax, SoftmaxProblem, slot};

#[cfg(feature = "cuda")]
use answer::tolerance;
