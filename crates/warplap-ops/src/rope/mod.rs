//! Rotary position embedding: heads of x, and of a second tensor k, are turned pair by pair by angles of a table. With
//! a bias in front of it and heads that are only biased, it is what follows the product of a fused projection, in one
//! launch. Turned back it is its own gradient.
//!
//! For the two elements a and b of a pair: `a·cos − b·sin` and `b·cos + a·sin`. The table has one row a position and
//! one column a pair; a wide one has a column for each element, as models have it that write the two halves out. A
//! position that the table does not have makes what is turned not a number: nothing is read there.

mod answer;
#[cfg(feature = "cpu")]
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod edges;
mod op;

pub use op::{Pairs, Positions, Rope, RopeProblem, slot};
pub(crate) use op::{SLOTS, align};
