//! Kernels in C: built with the system compiler, run in processes of their own, or, where a caller chooses so, in the
//! caller's.

mod apart;
mod build;
mod call;
mod calls;
mod cell;
pub(crate) mod child;
mod folder;
mod inputs;
mod lap;
mod memory;
mod remote;
pub(crate) mod reply;
mod text;
mod time_check;
mod variant;
mod waiting;

pub use apart::Apart;
pub(crate) use build::Workshop;
pub(crate) use variant::{OwnC, PlainC, Runs};
