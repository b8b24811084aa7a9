//! Products of 8-bit numbers: f8e4m3 with factors that make them the numbers they stand for, summed in f32, and signed
//! bytes with exact sums in i32.

mod answer;
#[cfg(feature = "cpu")]
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod edges;
mod op;

pub use op::{BLOCK, Qgemm, QgemmProblem, SLOTS, Scale, slot};

#[cfg(feature = "cuda")]
use answer::tolerance;
