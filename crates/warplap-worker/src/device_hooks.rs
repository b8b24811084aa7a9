//! What a device crate hands in: how its device is opened in a worker, who compiles its sources, and what an error
//! means.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use warplap_core::catalog::Catalog;
use warplap_core::device::Device;
use warplap_core::op::Op;
use warplap_core::worker_entry::{OpProver, Prove};

use crate::protocol::CompileOrder;

/// Whether an error leaves the device usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The call was refused; everything else goes on.
    Clean,
    /// The device's context is gone: the process must end and start anew.
    Fatal,
}

/// Why a device does not do what it always could.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Whether it can go on.
    pub class: Class,
    /// What it said.
    pub reason: String,
}

/// A device that a worker can open.
pub trait Hosted: Sized + 'static {
    /// Who compiles its sources.
    type Compiler: Compile;

    /// The kind of device, in one word: callers and workers find each other by it.
    fn kind() -> &'static str;

    /// Opens it in a worker, where candidates run at once: without a sandbox of its own. `artifacts` is the directory
    /// that holds the folder of compiled kernels.
    fn host(ordinal: i32, artifacts: Option<&Path>) -> Result<Self, String>;

    /// The compiler, where it is to be found.
    fn find_compiler() -> Result<Self::Compiler, String>;

    /// Whether it still works after a candidate failed on it.
    fn health(&self) -> Result<(), Fault>;
}

/// A compiler as a worker uses it.
pub trait Compile {
    /// The image and the log; the error is what the compiler said. It should stop at the deadline if it can.
    fn compile(&self, order: &CompileOrder, deadline: Instant) -> Result<(Vec<u8>, String), String>;
}

/// Opens the proving ground of an operation on a device.
type Opener<D> = Box<dyn Fn(Arc<D>) -> Box<dyn Prove>>;

/// One operation a worker can prove candidates of.
pub struct Ground<D> {
    pub(crate) op: &'static str,
    pub(crate) open: Opener<D>,
}

impl<D> Ground<D> {
    /// The proving ground of an operation whose catalog is known only when a candidate comes: what `open` gives finds
    /// it.
    pub fn by<O: Op>(open: impl Fn(Arc<D>) -> Box<dyn Prove> + 'static) -> Self {
        Self::named(O::NAME, open)
    }

    /// The proving ground of the operation of this name.
    pub fn named(op: &'static str, open: impl Fn(Arc<D>) -> Box<dyn Prove> + 'static) -> Self {
        Ground { op, open: Box::new(open) }
    }
}

impl<D: Device> Ground<D> {
    /// The proving ground of an operation over a catalog, which must hold the caller's variants with the caller's code.
    pub fn of<O: Op>(catalog: impl Fn() -> Catalog<O, D> + 'static) -> Self {
        Self::by::<O>(move |device| Box::new(OpProver::new(device, catalog())))
    }
}
