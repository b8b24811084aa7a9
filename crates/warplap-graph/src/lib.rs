//! A graph of operations that runs: nodes come in; which of them become one launch is decided by the measured time of
//! whole chains, proved against double precision, kept in the store, and dispatched to.
//!
//! ```
//! use warplap::{Budget, DType, Session};
//!
//! let budget = Budget { seconds: 0.2, ..Budget::default() };
//! let session = Session::builder().in_memory().threads(1).budget(budget).build();
//! let mut g = session.graph();
//! let (x, r) = (g.input("x", DType::F32, &[4, 64]), g.input("r", DType::F32, &[4, 64]));
//! let (gain, w) = (g.input("gain", DType::F32, &[64]), g.input("w", DType::F32, &[32, 64]));
//! let sum = g.add(x, r)?;
//! let h = g.rms_norm(sum, gain, 1e-6)?;
//! let y = g.linear(h, w)?;
//! let y = g.gelu(y)?;
//! let fused = g.output("y", y).output("sum", sum).build()?;
//!
//! let (x, r, gain, w) = (vec![1f32; 256], vec![0.5f32; 256], vec![1f32; 64], vec![0.01f32; 2048]);
//! let (mut y, mut sum) = (vec![0f32; 128], vec![0f32; 256]);
//! let inputs = [("x", &x), ("r", &r), ("gain", &gain), ("w", &w)].map(|(name, v)| (name, v[..].into()));
//! fused.run(inputs, [("y", (&mut y[..]).into()), ("sum", (&mut sum[..]).into())])?;
//! assert_eq!(sum, [1.5; 256]);
//! println!("{}", fused.explain());
//! # Ok::<(), warplap::Error>(())
//! ```
//!
//! The first run decides, or [`Fused::tune`] does ahead of it. What each node and each cover takes by itself is a record
//! of its own operation; these times say which partitions are worth a race, and the race of whole chains says who wins.
//! The store keeps the decision by the graph's structure, types and sizes, rounded as the operations round theirs.

mod answers;
mod building;
mod chain;
mod explain;
mod fused;
pub mod fusion_patterns;
pub mod partition;
mod plan;
mod predict;
mod problem;
mod report;
mod sized;
mod task;
#[cfg(test)]
mod tests;
mod variant;

use answers::{answer, host, on_device, sample};
use building::{attention_nodes, builder, node};

pub use attention_nodes::Turn;
pub use builder::Builder;
pub use fused::Fused;
pub use node::Tensor;
pub use predict::RacedSizes;
pub use problem::{GraphProblem, Graphs};
pub use task::{Ground, Part, Task, Tuners};

/// The programs of the page on fusing compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/fusing.md")]
struct Fusing;
