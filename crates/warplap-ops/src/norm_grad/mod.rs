//! Normalisation backward: from s, which was normalised, and the gradient dy of y = norm(s) * weight + bias come the
//! gradients of s, of weight and bias (sums over rows), and, where s = dropout(x) + residual, that of x.
//!
//! With h the norm of s, i one over what s was divided by, g = dy * weight, and mean() over a row:
//! ds = i * (g − h * mean(g * h)), less i * mean(g) where the mean was taken away, plus what comes from elsewhere.

mod answer;
#[cfg(feature = "cpu")]
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod edges;
mod op;

pub(crate) use op::SLOTS;
pub use op::{NormGrad, NormGradProblem, slot};

#[cfg(feature = "cuda")]
use answer::{Reach, tolerances};
