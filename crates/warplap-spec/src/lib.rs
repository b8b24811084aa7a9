//! A user's own kernel: a spec file and a C or CUDA source come in; an ordinary operation with ordinary variants goes
//! out, so that verifying, racing, storing and explaining are those of every other operation.
//!
//! ```no_run
//! use warplap::any::{AnyDevice, Wanted};
//! use warplap::core::{progress::Silent, store::Store};
//! use warplap_spec::Spec;
//!
//! let spec = Spec::load("conv2d.toml".as_ref())?;
//! let device = AnyDevice::open(Wanted::CPU, None)?;
//! spec.ready_on(&device)?;
//! let tuner = spec.open(&device, Store::memory(), warplap::Settings::default())?;
//! let tuned = tuner.tune(&spec.problem(), &Silent)?;
//! println!("{} takes {:.1} us", tuned.edition.verdict.winner, tuned.edition.verdict.median_us);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod argument;
mod c;
mod cuda;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod npy;
mod op;
mod open;
mod prove;
mod python;
mod read;
mod spec;

pub use argument::{Argument, Element, Fill, Role};
pub use c::Apart;
pub use error::SpecError;
pub use op::{KernelFile, KernelProblem};
pub use prove::ground;
pub use spec::{Language, Spec};
