//! The oracle: right answers computed where the inputs are. Inputs on a device come in; the right answer in its memory
//! and how far a kernel may be off go out.
//!
//! Where memory is far away, bringing every output home and a double-precision product on the host are most of the time a
//! tuning takes. The answer then lies where a bad kernel could write: it is sealed when it is made, and who breaks the
//! seal is rejected.

use crate::device::{Bounds, Device};
use crate::error::Error;
use crate::op::Op;
use crate::tolerance::Tolerance;

/// A right answer in a device's memory.
pub struct FarAnswer<D: Device> {
    /// Every element of the output in double precision; NaN where padding must stay as it was.
    pub values: D::Buffer,
    /// How far each may be off.
    pub tolerance: Tolerance,
}

/// Who computes right answers on a device.
pub trait Oracle<O: Op, D: Device>: Send + Sync {
    /// The right answer to inputs on a device, in double precision. An error means that the host must do it.
    fn answer(&self, problem: &O::Problem, inputs: &[&D::Buffer], device: &D) -> Result<FarAnswer<D>, Error>;
}

/// A right answer in a device's memory, with the seals of it and of the inputs it belongs to.
pub(crate) struct Sealed<D: Device> {
    pub(crate) answer: FarAnswer<D>,
    pub(crate) seal: u64,
    pub(crate) inputs: Vec<u64>,
}

impl<D: Device> Sealed<D> {
    /// Asks the oracle; `None` where the host must answer.
    pub(crate) fn new<O: Op>(
        oracle: &dyn Oracle<O, D>,
        problem: &O::Problem,
        inputs: &[&D::Buffer],
        device: &D,
    ) -> Option<Self> {
        let sealed = || {
            let answer = oracle.answer(problem, inputs, device)?;
            let seal = device.seal(&answer.values)?;
            let inputs = inputs.iter().map(|input| device.seal(input)).collect::<Result<Vec<u64>, Error>>()?;
            Ok(Sealed { answer, seal, inputs })
        };
        sealed().map_err(|e: Error| tracing::debug!("{}: the host answers: {e}", O::text(problem))).ok()
    }

    /// What a comparison with it is held to.
    pub(crate) fn bounds(&self, guard: usize, guard_value: f64) -> Bounds {
        Bounds { guard, guard_value, tolerance: self.answer.tolerance }
    }
}
