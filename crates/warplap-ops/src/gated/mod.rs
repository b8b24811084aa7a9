//! Element by element: y = act(a), joined with b. Multiplied it is the middle of a gated layer (SwiGLU, GeGLU) where
//! its two products are there already; added, a residual sum; joined with nothing, the activation alone. a and b may be
//! the halves of one tensor: their rows lie as far apart as the problem says.
//!
//! Arithmetic is in f32 with one rounding at the end: act(a) is not rounded before it is joined.

mod answer;
#[cfg(feature = "cpu")]
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod edges;
mod op;

pub use op::{Gated, GatedProblem, slot};
pub(crate) use op::{SLOTS, align};

#[cfg(feature = "cuda")]
use answer::tolerance;
