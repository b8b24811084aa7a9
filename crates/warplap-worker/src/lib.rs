//! Worker processes for a device: candidates prove themselves there, sources are compiled there, and what was compiled
//! is kept sealed. This crate knows no vendor: a device crate hands in what is its own (see [`Hosted`]).
//!
//! What comes in is a request by names; what goes out is "passed" or a Rejection, or compiled bytes. Whatever happens
//! in a worker, the caller's process lives.

pub mod artifact;
mod child_process;
mod device_hooks;
#[doc(hidden)]
pub mod fuzzing;
mod pool;
mod process;
mod protocol;
mod sandbox;
mod serve;
mod worker_setup;

pub use child_process::ChildProcess;
pub use device_hooks::{Class, Compile, Fault, Ground, Hosted};
pub use pool::{COMPILE, Pool};
pub use process::{Gone, Program};
pub use protocol::{CompileOrder, Setup};
pub use sandbox::Sandbox;
pub use serve::{Service, serve_if_asked};
pub use worker_setup::WorkerSetup;
