//! A case: one drawing of inputs in a device's memory, ready to be launched on. A problem and a seed come in; memory for
//! every slot goes out, poisoned where kernels write and between guard bands.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use crate::candidates::variant::Kernel;
use crate::device::{Bounds, Compared, Device};
use crate::error::Error;
use crate::model::arg::{Arg, ScalarArg};
use crate::model::array::Array;
use crate::model::dtype::DType;
use crate::model::erased::ErasedProblem;
use crate::model::op::Answer;
use crate::model::slot::{Role, Signature, Slot};
use crate::prove::oracle::FarAnswer;
use crate::prove::panics::contained;
use crate::prove::perturb_inputs::PerturbedSpot;
use crate::prove::sealed::Sealed;
use crate::rejection::Rejection;

/// Elements of one guard band. A multiple of every cache line, so that what lies between them stays aligned.
pub(crate) const GUARD: usize = 256;

/// What guard bands of a type hold: a number no operation on inputs in [-1, 1) gives, or the least likely one of a type
/// that has no such number.
pub(crate) fn guard_value(dtype: DType) -> f64 {
    match dtype {
        DType::U8 => 219.0,
        _ => -1024.0,
    }
}

/// What an output of a type is filled with before a launch: a value that no kernel has any reason to write.
pub fn poison_of(dtype: DType) -> f64 {
    match dtype {
        DType::I32 | DType::I64 => f64::from(i32::MIN + 0x0bad),
        DType::I8 => -117.0,
        DType::U8 => 173.0,
        _ => f64::NAN,
    }
}

/// Elements of a guard band on either side of a slot's memory: none where kernels have no business to write.
pub(crate) fn guard(slot: &Slot) -> usize {
    if slot.is_written() { GUARD } else { 0 }
}

/// What a slot's memory holds before a launch.
fn image<'a>(slot: &Slot, content: &'a Array) -> Option<Cow<'a, Array>> {
    match slot.role {
        _ if !slot.is_buffer() => None,
        Role::In => Some(Cow::Borrowed(content)),
        role => {
            let len = slot.len();
            let mut image = Array::filled(slot.dtype, len + 2 * GUARD, poison_of(slot.dtype));
            image.fill(0..GUARD, guard_value(slot.dtype));
            image.fill(GUARD + len..len + 2 * GUARD, guard_value(slot.dtype));
            if role == Role::InOut {
                image.put(GUARD, content);
                // Padding is poison here too: that it stayed as it was is seen in the same way.
                for gap in slot.padding() {
                    image.fill(GUARD + gap.start..GUARD + gap.end, poison_of(slot.dtype));
                }
            }
            Some(Cow::Owned(image))
        }
    }
}

/// One drawing of inputs in host memory, and the right answers to them where the host was asked for them.
#[derive(Clone, Debug)]
pub struct Drawing {
    pub(crate) arrays: Vec<Array>,
    pub(crate) answers: Option<Vec<Answer>>,
}

impl Drawing {
    /// Draws inputs from a seed, with the right answers to them.
    pub fn new<D: Device>(problem: &dyn ErasedProblem<D>, seed: u64) -> Result<Self, Error> {
        Self::inputs(problem, seed)?.answered(problem)
    }

    /// Draws inputs from a seed.
    pub(crate) fn inputs<D: Device>(problem: &dyn ErasedProblem<D>, seed: u64) -> Result<Self, Error> {
        let (signature, arrays) = (problem.signature(), problem.draw(seed));
        let wrong = |what: String| Err(Error::Device(format!("{}: {what}", problem.op())));
        if arrays.len() != signature.slots().len() {
            return wrong(format!("{} arrays were drawn for {} slots", arrays.len(), signature.slots().len()));
        }
        for (slot, array) in signature.slots().iter().zip(&arrays).filter(|(slot, _)| slot.is_read()) {
            let expected = (slot.dtype, slot.len());
            if (array.dtype(), array.len()) != expected {
                let result = (array.dtype(), array.len());
                return wrong(format!("{result:?} was drawn for '{}', expected {expected:?}", slot.name));
            }
        }
        Ok(Drawing { arrays, answers: None })
    }

    /// With the right answers, unless it has them.
    pub(crate) fn answered<D: Device>(mut self, problem: &dyn ErasedProblem<D>) -> Result<Self, Error> {
        let answers = self.answers.take().unwrap_or_else(|| problem.answer(&self.arrays));
        let lengths = problem.signature().written().map(Slot::len).collect::<Vec<_>>();
        if answers.iter().map(|a| a.values.len()).collect::<Vec<_>>() != lengths {
            return Err(Error::Device(format!("{}: the answer does not have the outputs' lengths", problem.op())));
        }
        Ok(Drawing { answers: Some(answers), ..self })
    }
}

/// What a kernel left in the slots it writes, in their order.
pub(crate) enum Left {
    /// Brought home.
    Near(Vec<Array>),
    /// Compared where they are.
    Far(Vec<Compared>),
    /// In arguments of the kernel's own, which it has judged itself: the largest share of the allowed error.
    Judged(f64),
}

/// A drawing with a copy of its inputs on a device whose memory is far away, and the right answers to them.
pub(crate) struct Placed<D: Device> {
    pub(crate) drawing: Arc<Drawing>,
    buffers: Option<Vec<Option<D::Buffer>>>,
    pub(crate) far: Option<Arc<Sealed<D>>>,
}

impl<D: Device> Placed<D> {
    /// Puts a drawing on a device, where there is room for it, and finds the right answers: there, or else on the host.
    pub(crate) fn new(problem: &dyn ErasedProblem<D>, device: &D, drawing: Drawing) -> Result<Self, Error> {
        let signature = problem.signature();
        let upload = |(slot, array): (&Slot, &Array)| match image(slot, array).filter(|_| slot.is_read()) {
            Some(image) => device.upload_queued(&image).map(Some),
            None => Ok(None),
        };
        let all = || signature.slots().iter().zip(&drawing.arrays).map(upload).collect::<Result<Vec<_>, Error>>();
        let buffers = match if D::LAUNCH_IS_CALL { None } else { Some(all()) } {
            Some(Err(why)) if problem.oracle() == Some(true) => return Err(why),
            uploaded => uploaded.and_then(Result::ok),
        };
        let far = match &buffers {
            Some(buffers) => ask(problem, &signature, buffers, device)?,
            None => None,
        };
        let drawing = if far.is_some() { drawing } else { drawing.answered(problem)? };
        Ok(Placed { drawing: Arc::new(drawing), buffers, far })
    }
}

/// Asks the oracle about what buffers hold, slot by slot.
fn ask<D: Device>(
    problem: &dyn ErasedProblem<D>,
    signature: &Signature,
    buffers: &[Option<D::Buffer>],
    device: &D,
) -> Result<Option<Arc<Sealed<D>>>, Error> {
    let (mut inputs, mut read) = (Vec::new(), Vec::new());
    for (slot, buffer) in signature.slots().iter().zip(buffers) {
        let buffer = buffer.as_ref().filter(|_| slot.is_read());
        inputs.push(buffer.map(|b| device.view(b, guard(slot)..guard(slot) + slot.len())));
        read.push(buffer);
    }
    Ok(Sealed::new(problem, &read, &inputs, device)?.map(Arc::new))
}

/// Memory for every slot of a problem on a device, and the right answers to what it holds.
pub struct Case<D: Device> {
    pub(crate) signature: Signature,
    pub(crate) buffers: Vec<Option<D::Buffer>>,
    // What the slots hold that kernels only write.
    poison: Vec<Option<Array>>,
    // Where memory is far away, poison is kept there: a proof then brings the answer home and nothing else.
    blank: Vec<Option<D::Buffer>>,
    scalars: Vec<Option<ScalarArg>>,
    // Whether nobody has been launched since memory was filled: what is changed in place need not be filled again.
    pub(crate) fresh: bool,
    pub(crate) drawing: Option<Arc<Drawing>>,
    // The right answers where the inputs are, if an oracle gave them.
    pub(crate) far: Option<Arc<Sealed<D>>>,
}

impl<D: Device> Case<D> {
    /// Draws inputs from a seed, with the right answers to them.
    pub fn new(problem: &dyn ErasedProblem<D>, device: &D, seed: u64) -> Result<Self, Error> {
        Self::of(problem, device, &Arc::new(Drawing::new(problem, seed)?))
    }

    /// Puts a drawing on a device.
    pub fn of(problem: &dyn ErasedProblem<D>, device: &D, drawing: &Arc<Drawing>) -> Result<Self, Error> {
        let case = Self::upload(problem, device, &drawing.arrays)?;
        Ok(Case { drawing: Some(drawing.clone()), ..case })
    }

    /// Draws inputs for timing alone: nobody will ask for the answer.
    pub fn without_answer(problem: &dyn ErasedProblem<D>, device: &D, seed: u64) -> Result<Self, Error> {
        Self::upload(problem, device, &Drawing::inputs(problem, seed)?.arrays)
    }

    /// A case in memory of its own for drawings that were placed on the device.
    pub(crate) fn among(problem: &dyn ErasedProblem<D>, device: &D, placed: &Placed<D>) -> Result<Self, Error> {
        let mut case = Self::upload(problem, device, &placed.drawing.arrays)?;
        (case.drawing, case.far) = (Some(placed.drawing.clone()), placed.far.clone());
        Ok(case)
    }

    fn upload(problem: &dyn ErasedProblem<D>, device: &D, arrays: &[Array]) -> Result<Self, Error> {
        let signature = problem.signature();
        let (mut buffers, mut poison) = (Vec::new(), Vec::new());
        for (slot, array) in signature.slots().iter().zip(arrays) {
            let image = image(slot, array);
            buffers.push(image.as_ref().map(|image| device.upload_queued(image)).transpose()?);
            poison.push(image.filter(|_| slot.role == Role::Out).map(Cow::into_owned));
        }
        let (blank, scalars) = (signature.slots().iter().map(|_| None).collect(), scalars(&signature, arrays));
        Ok(Case { signature, buffers, poison, blank, scalars, fresh: true, drawing: None, far: None })
    }

    /// Keeps a copy of the poison on a device whose memory is far away, for many proofs.
    pub(crate) fn for_many(mut self, device: &D) -> Self {
        if !D::LAUNCH_IS_CALL {
            let keep = |poison: &Option<Array>| poison.as_ref().and_then(|p| device.upload_queued(p).ok());
            self.blank = self.poison.iter().map(keep).collect();
        }
        self
    }

    /// Puts a drawing into the same memory and finds the right answers to it: there, or else on the host.
    pub(crate) fn refill_asking(
        &mut self,
        problem: &dyn ErasedProblem<D>,
        device: &D,
        drawing: &Arc<Drawing>,
    ) -> Result<(), Error> {
        self.refill(device, drawing)?;
        match ask(problem, &self.signature, &self.buffers, device)? {
            Some(far) => self.far = Some(far),
            None if drawing.answers.is_some() => {}
            None => self.drawing = Some(Arc::new(Drawing::clone(drawing).answered(problem)?)),
        }
        Ok(())
    }

    /// Puts a drawing into the same memory, from its copy on the device where there is one.
    pub(crate) fn refill_from(&mut self, device: &D, placed: &Placed<D>) -> Result<(), Error> {
        match &placed.buffers {
            None => self.refill(device, &placed.drawing)?,
            Some(copies) => {
                for (to, from) in self.buffers.iter_mut().zip(copies) {
                    if let (Some(to), Some(from)) = (to, from) {
                        device.copy(to, from)?;
                    }
                }
                self.scalars = scalars(&self.signature, &placed.drawing.arrays);
                (self.drawing, self.fresh) = (Some(placed.drawing.clone()), true);
            }
        }
        self.far = placed.far.clone();
        Ok(())
    }

    /// Puts another drawing into the same memory.
    pub fn refill(&mut self, device: &D, drawing: &Arc<Drawing>) -> Result<(), Error> {
        let slots = self.signature.slots().iter().zip(&drawing.arrays);
        for ((slot, array), buffer) in slots.zip(&mut self.buffers).filter(|((slot, _), _)| slot.is_read()) {
            if let (Some(image), Some(buffer)) = (image(slot, array), buffer) {
                device.write(buffer, &image)?;
            }
        }
        self.scalars = scalars(&self.signature, &drawing.arrays);
        (self.drawing, self.far, self.fresh) = (Some(drawing.clone()), None, true);
        Ok(())
    }

    /// A drawing whose inputs are those in memory now, without the right answers to them.
    fn left_with(&self, device: &D, drawing: &Drawing) -> Result<Drawing, Error> {
        let slots = self.signature.slots().iter().zip(&self.buffers).zip(&drawing.arrays);
        let left = slots.map(|((slot, buffer), drawn)| match buffer.as_ref().filter(|_| slot.role == Role::In) {
            Some(buffer) => device.download(buffer),
            None => Ok(drawn.clone()),
        });
        Ok(Drawing { arrays: left.collect::<Result<_, Error>>()?, answers: None })
    }

    /// What a clock changes between a kernel's launches, where the device says where it is.
    pub(crate) fn spots(&self, kernel: &dyn Kernel<D>, device: &D) -> Vec<PerturbedSpot> {
        let all = self.signature.slots().iter().zip(&self.buffers);
        let spot = |(slot, buffer): (&Slot, &Option<D::Buffer>)| {
            let at = device.whereabouts(buffer.as_ref()?)?;
            PerturbedSpot::of(slot, at + (guard(slot) * slot.dtype.bytes()) as u64)
        };
        let writes = kernel.writes();
        all.filter(|(slot, _)| writes || !slot.is_written()).filter_map(spot).collect()
    }

    /// Finds the right answers to what timed launches have left in memory: there, or else on the host.
    pub(crate) fn ask_again(
        &mut self,
        problem: &dyn ErasedProblem<D>,
        device: &D,
        drawing: &Drawing,
    ) -> Result<(), Error> {
        // What was changed in place again and again may be anything by now.
        let slots = self.signature.slots().iter().zip(&drawing.arrays).zip(&mut self.buffers);
        for ((slot, array), buffer) in slots.filter(|((slot, _), _)| slot.role == Role::InOut) {
            if let (Some(image), Some(buffer)) = (image(slot, array), buffer) {
                device.write(buffer, &image)?;
            }
        }
        self.fresh = true;
        match ask(problem, &self.signature, &self.buffers, device)? {
            // What was drawn is there no longer.
            Some(far) => (self.far, self.drawing) = (Some(far), None),
            None => {
                let left = self.left_with(device, drawing)?.answered(problem)?;
                self.refill(device, &Arc::new(left))?;
            }
        }
        Ok(())
    }

    /// Launches a kernel on this case's buffers. A panic becomes a Rejection.
    pub fn launch(&mut self, kernel: &dyn Kernel<D>, device: &D, queue: &D::Queue) -> Result<(), Rejection> {
        let mut args: Vec<Arg<'_, D>> = Vec::with_capacity(self.buffers.len());
        for ((slot, scalar), buffer) in self.signature.slots().iter().zip(&self.scalars).zip(&mut self.buffers) {
            let elements = guard(slot)..guard(slot) + slot.len();
            args.push(match buffer {
                Some(buffer) => match slot.is_written() {
                    true => Arg::Write(device.view_mut(buffer, elements)),
                    false => Arg::Read(device.view(buffer, elements)),
                },
                None => scalar.map_or(Arg::Absent, Arg::Scalar),
            });
        }
        self.fresh = false;
        contained(|| kernel.launch(&mut args, queue))
    }

    /// Runs a kernel on poisoned outputs: what it left, and the seconds of the launch where it is a call.
    pub(crate) fn run(&mut self, kernel: &dyn Kernel<D>, device: &D) -> Result<(Left, Option<f64>), Rejection> {
        if let Some(proof) = contained(|| kernel.prove().transpose())? {
            return Ok((Left::Judged(proof.error), proof.seconds));
        }
        self.poison(device).map_err(failed)?;
        let started = Instant::now();
        self.launch(kernel, device, device.queue())?;
        let seconds = D::LAUNCH_IS_CALL.then(|| started.elapsed().as_secs_f64());
        Ok((self.left(device)?, seconds))
    }

    /// What stands in the slots that kernels write.
    pub(crate) fn left(&self, device: &D) -> Result<Left, Rejection> {
        let written = || {
            let all = self.signature.slots().iter().zip(&self.buffers).filter(|(slot, _)| slot.is_written());
            all.filter_map(|(slot, buffer)| Some((slot, buffer.as_ref()?)))
        };
        Ok(match &self.far {
            Some(far) => {
                let compare = |((slot, output), right): ((&Slot, &D::Buffer), &FarAnswer<D>)| {
                    let (guard_value, tolerance) = (guard_value(slot.dtype), right.tolerance);
                    device.compare(output, &right.values, Bounds { guard: GUARD, guard_value, tolerance })
                };
                Left::Far(written().zip(&far.answers).map(compare).collect::<Result<_, Error>>().map_err(failed)?)
            }
            None => {
                Left::Near(written().map(|(_, b)| device.download(b)).collect::<Result<_, Error>>().map_err(failed)?)
            }
        })
    }

    /// Poisons what kernels are to write, and fills in what they change in place.
    fn poison(&mut self, device: &D) -> Result<(), Error> {
        for (i, slot) in self.signature.slots().iter().enumerate().filter(|(_, slot)| slot.is_written()) {
            let Some(buffer) = &mut self.buffers[i] else { continue };
            match (&self.blank[i], &self.poison[i], &self.drawing) {
                (Some(blank), ..) => device.copy(buffer, blank)?,
                (None, Some(poison), _) => device.write(buffer, poison)?,
                (None, None, Some(drawing)) if !self.fresh => {
                    let image = image(slot, &drawing.arrays[i]).unwrap_or(Cow::Owned(Array::none()));
                    device.write(buffer, &image)?;
                }
                (None, None, _) => {}
            }
        }
        Ok(())
    }

    /// The right answers, where the host was asked for them.
    pub fn answers(&self) -> Option<&[Answer]> {
        self.drawing.as_ref().and_then(|d| d.answers.as_deref())
    }

    /// Bytes of all slots together.
    pub fn footprint(&self) -> usize {
        self.signature.bytes()
    }
}

fn scalars(signature: &Signature, arrays: &[Array]) -> Vec<Option<ScalarArg>> {
    let number = |(slot, array): (&Slot, &Array)| {
        (slot.present && slot.role == Role::Scalar && !array.is_empty()).then(|| match array.indices() {
            Some(whole) => ScalarArg::Int(whole[0].into()),
            None => ScalarArg::Real(array.at(0)),
        })
    };
    signature.slots().iter().zip(arrays).map(number).collect()
}

pub(crate) fn failed(error: Error) -> Rejection {
    Rejection::LaunchFailed { reason: error.to_string() }
}
