//! The router of a mixture of experts: the k largest of each row, with their shares of the row's softmax. Equal numbers
//! are taken in the order of their places; -inf is an expert that is hidden.

mod answer;
#[cfg(feature = "cpu")]
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod edges;
mod op;
mod order;

pub(crate) use op::{MOST, SLOTS};
pub use op::{TopkSoftmax, TopkSoftmaxProblem, slot};

#[cfg(feature = "cuda")]
use answer::{EXACT, tolerance};
