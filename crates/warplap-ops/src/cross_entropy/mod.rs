//! Cross entropy of rows of logits x with labels y: a row's loss is `lse − (1 − s) · x[y] − s · mean(x) + z · lse²`,
//! with lse the logarithm of the sum of its exponentials, s the smoothing and z the z-loss. The total is the mean over the
//! rows that count, or their sum, and its gradient may take the logits' place.
//!
//! A row whose label is `ignore` has loss and gradient zero and does not count. A label that is no column makes the loss
//! (and the total) not a number: nothing is read there.

mod answer;
#[cfg(feature = "cpu")]
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod edges;
mod op;

pub(crate) use op::SLOTS;
pub use op::{CrossEntropy, CrossEntropyProblem, Reduction, slot};
