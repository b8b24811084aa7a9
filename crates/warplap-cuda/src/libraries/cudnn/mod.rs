//! cuDNN: NVIDIA's fused graphs of operations, found at run time. A graph of tensors and nodes comes in; a plan that
//! queues all of it goes out.

mod descriptor;
mod graph;
mod library;
mod made;
mod plan;

pub use graph::{DnnGraph, DnnMode, DnnNode, DnnPlace, DnnReduction, DnnTensor, DnnTensorSpec};
pub use library::Dnn;
pub(crate) use plan::DnnHandles;
pub use plan::DnnPlan;
