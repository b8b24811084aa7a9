//! C kernels on the CPU: built with the system compiler, tried out in a process of their own, loaded and called.

mod build;
mod call;
pub(crate) mod child;
mod text;
mod variant;

pub(crate) use build::Workshop;
pub(crate) use variant::{OwnC, PlainC};
