//! Worker processes for a device: candidates prove themselves there, sources are compiled there, and what was compiled
//! is kept sealed. This crate knows no vendor: a device crate hands in what is its own (see [`Hosted`]).
//!
//! What comes in is a request by names; what goes out is "passed" or a Rejection, or compiled bytes. Whatever happens
//! in a worker, the caller's process lives.

pub mod artifact;
mod crew;
#[doc(hidden)]
pub mod fuzzing;
mod guest;
mod hosted;
mod pool;
mod process;
mod protocol;
mod sandbox;
mod serve;

pub use crew::Crew;
pub use guest::Guest;
pub use hosted::{Class, Compile, Fault, Ground, Hosted};
pub use pool::{COMPILE, Pool};
pub use process::{Gone, Program};
pub use protocol::{CompileOrder, Setup};
pub use sandbox::Sandbox;
pub use serve::{Service, serve_if_asked};
