//! The oracle: right answers computed where the inputs are. Inputs on a device come in; the right answers in its memory
//! and how far a kernel may be off go out.
//!
//! Where memory is far away, bringing every output home and a double-precision product on the host are most of the time
//! a tuning takes. The answer then lies where a bad kernel could write: it is sealed when it is made, and who breaks
//! the seal is rejected.

use crate::device::Device;
use crate::error::Error;
use crate::model::op::Op;
use crate::model::tolerance::Tolerance;

/// A right answer in a device's memory.
pub struct FarAnswer<D: Device> {
    /// Every element of the slot in double precision; NaN where padding must stay as it was.
    pub values: D::Buffer,
    /// How far each may be off.
    pub tolerance: Tolerance,
}

/// Inputs on a device: one view a slot, nothing where nothing is read.
pub type Inputs<'a, D> = [Option<<D as Device>::View<'a>>];

/// Who computes right answers on a device.
pub trait Oracle<O: Op, D: Device>: Send + Sync {
    /// The right answer to inputs on a device, in double precision: one for each slot that is written, in order. An
    /// error means that the host must do it, unless nobody but this oracle can.
    fn answer(&self, problem: &O::Problem, inputs: &Inputs<'_, D>, device: &D) -> Result<Vec<FarAnswer<D>>, Error>;

    /// Whether the host has no answer: then the oracle's error is that of whoever asked.
    fn is_alone(&self) -> bool {
        false
    }
}
