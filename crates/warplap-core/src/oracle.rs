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
    /// The right answer to inputs on a device, in double precision. An error means that the host must do it, unless nobody
    /// but this oracle can.
    fn answer(&self, problem: &O::Problem, inputs: &[&D::Buffer], device: &D) -> Result<FarAnswer<D>, Error>;

    /// Whether the host has no answer: then the oracle's error is that of whoever asked.
    fn is_alone(&self) -> bool {
        false
    }
}

/// A right answer in a device's memory, with the seals of it and of the inputs it belongs to.
pub(crate) struct Sealed<D: Device> {
    pub(crate) answer: FarAnswer<D>,
    pub(crate) seal: u64,
    pub(crate) inputs: Vec<u64>,
}

impl<D: Device> Sealed<D> {
    /// Asks the oracle; `None` where the host must answer, an error where it cannot.
    pub(crate) fn new<O: Op>(
        oracle: &dyn Oracle<O, D>,
        problem: &O::Problem,
        inputs: &[&D::Buffer],
        device: &D,
    ) -> Result<Option<Self>, Error> {
        let sealed = || {
            // The inputs first: an oracle that writes into them is found out like any kernel that does.
            let seals = inputs.iter().map(|input| device.seal(input)).collect::<Result<Vec<u64>, Error>>()?;
            let answer = oracle.answer(problem, inputs, device)?;
            let seal = device.seal(&answer.values)?;
            Ok(Sealed { answer, seal, inputs: seals })
        };
        match sealed() {
            Ok(sealed) => Ok(Some(sealed)),
            Err(why) if oracle.is_alone() => Err(why),
            Err(why) => {
                tracing::debug!("{}: the host answers: {why}", O::text(problem));
                Ok(None)
            }
        }
    }

    /// What a comparison with it is held to.
    pub(crate) fn bounds(&self, guard: usize, guard_value: f64) -> Bounds {
        Bounds { guard, guard_value, tolerance: self.answer.tolerance }
    }
}
