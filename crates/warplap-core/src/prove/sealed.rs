//! Sealed answers: inputs in a device's memory come in; the oracle's answers to them go out, with seals of both.

use crate::device::Device;
use crate::error::Error;
use crate::model::erased::ErasedProblem;
use crate::prove::oracle::{FarAnswer, Inputs};

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
        problem: &dyn ErasedProblem<D>,
        buffers: &[Option<&D::Buffer>],
        inputs: &Inputs<'_, D>,
        device: &D,
    ) -> Result<Option<Self>, Error> {
        let Some(alone) = problem.oracle() else { return Ok(None) };
        let sealed = || {
            // The inputs first: an oracle that writes into them is found out like any kernel that does.
            let seal = |buffer: &Option<&D::Buffer>| buffer.map(|b| device.seal(b)).transpose();
            let of_inputs = buffers.iter().map(seal).collect::<Result<_, Error>>()?;
            let answers = problem.far_answer(inputs, device)?;
            let seals = answers.iter().map(|a| device.seal(&a.values)).collect::<Result<_, Error>>()?;
            Ok(Sealed { answers, seals, inputs: of_inputs })
        };
        match sealed() {
            Ok(sealed) => Ok(Some(sealed)),
            Err(why) if alone => Err(why),
            Err(why) => {
                tracing::debug!("{}: the host answers: {why}", problem.text());
                Ok(None)
            }
        }
    }
}
