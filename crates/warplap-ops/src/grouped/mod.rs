//! Products by groups: `y = x·w[e]` for the rows of each expert e, which lie one behind the other in x and y.
//!
//! `offsets` says where each expert's rows end. Experts may have no rows; rows behind the last end belong to nobody,
//! and what y holds there stays as it was. Sums are in f32.

mod answer;
mod counts;
#[cfg(feature = "cpu")]
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod edges;
mod ends;
mod op;

pub use counts::Spread;
pub use ends::{OffsetsError, ranges};
pub(crate) use op::SLOTS;
pub use op::{Grouped, GroupedProblem, slot};

#[cfg(feature = "cuda")]
use answer::tolerance;
