//! The driver: `libcuda` opened at run time, and what the device asks of it, each call with its error.

mod api;
mod captured;
mod context;
mod function;
mod graph;
mod pool;
mod stream;
mod tensor_map;

pub(crate) use context::{Context, Relaxed};
pub(crate) use function::Module;
pub use function::{Function, LaunchShape};
pub(crate) use graph::Graph;
pub(crate) use stream::Event;
pub use stream::Stream;
pub use tensor_map::{Layers, TensorMap, TensorMapSpec};
