//! The oracle: right answers computed where the inputs are. Inputs on a device come in; the right answers in its memory
//! and how far a kernel may be off go out.
//!
//! Where memory is far away, bringing every output home and a double-precision product on the host are most of the time a
//! tuning takes. The answer then lies where a bad kernel could write: it is sealed when it is made, and who breaks the
//! seal is rejected.

use crate::card::Card;
use crate::device::Device;
use crate::error::Error;
use crate::op::Op;
use crate::tolerance::Tolerance;

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
    /// The right answer to inputs on a device, in double precision: one for each slot that is written, in order. An error
    /// means that the host must do it, unless nobody but this oracle can.
    fn answer(&self, problem: &O::Problem, inputs: &Inputs<'_, D>, device: &D) -> Result<Vec<FarAnswer<D>>, Error>;

    /// Whether the host has no answer: then the oracle's error is that of whoever asked.
    fn is_alone(&self) -> bool {
        false
    }
}

/// Right answers in a device's memory, with the seals of them and of the inputs they belong to.
pub(crate) struct Sealed<D: Device> {
    pub(crate) answers: Vec<FarAnswer<D>>,
    pub(crate) seals: Vec<u64>,
    /// One a slot, nothing where nothing is read.
    pub(crate) inputs: Vec<Option<u64>>,
}

impl<D: Device> Sealed<D> {
    /// Asks the oracle about inputs in these buffers; `None` where the host must answer, an error where it cannot.
    pub(crate) fn new(
        card: &dyn Card<D>,
        buffers: &[Option<&D::Buffer>],
        inputs: &Inputs<'_, D>,
        device: &D,
    ) -> Result<Option<Self>, Error> {
        let Some(alone) = card.oracle() else { return Ok(None) };
        let sealed = || {
            // The inputs first: an oracle that writes into them is found out like any kernel that does.
            let seal = |buffer: &Option<&D::Buffer>| buffer.map(|b| device.seal(b)).transpose();
            let of_inputs = buffers.iter().map(seal).collect::<Result<_, Error>>()?;
            let answers = card.far_answer(inputs, device)?;
            let seals = answers.iter().map(|a| device.seal(&a.values)).collect::<Result<_, Error>>()?;
            Ok(Sealed { answers, seals, inputs: of_inputs })
        };
        match sealed() {
            Ok(sealed) => Ok(Some(sealed)),
            Err(why) if alone => Err(why),
            Err(why) => {
                tracing::debug!("{}: the host answers: {why}", card.text());
                Ok(None)
            }
        }
    }
}
