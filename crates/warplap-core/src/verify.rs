//! Verify: a kernel and a right answer come in; "right" or a WrongAnswer goes out.
//!
//! Inputs are fresh and random, the output is poisoned with NaN, and guard bands on both sides of it must come back
//! untouched. A kernel is proved on two drawings in the same memory: what it remembers of the first is wrong the second
//! time.

use std::sync::Arc;
use std::time::Instant;

use crate::array::Array;
pub use crate::contained::contained;
use crate::device::{Compared, Device};
use crate::dtype::DType;
use crate::error::Error;
use crate::op::{Answer, Op};
use crate::oracle::{Oracle, Sealed};
use crate::rejection::Rejection;
use crate::variant::Kernel;

/// Elements of one guard band. A multiple of every cache line, so that the output between them stays aligned.
const GUARD: usize = 256;

/// What guard bands hold: a number no operation on inputs in [-1, 1) gives.
const GUARD_VALUE: f64 = -1024.0;

/// What an output of a type is filled with before a launch: a value that no kernel has any reason to write.
pub fn poison_of(dtype: DType) -> f64 {
    match dtype {
        DType::I32 => f64::from(i32::MIN + 0x0bad),
        _ => f64::NAN,
    }
}

/// What a kernel that gave the right answer showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proof {
    /// The largest share of the allowed error.
    pub error: f64,
    /// Seconds the first launch took, on devices where a launch is a call. Not a measurement: caches were cold.
    pub seconds: Option<f64>,
}

/// One drawing of inputs in host memory, and the right answer to them where the host was asked for it.
#[derive(Clone, Debug)]
pub struct Drawing {
    arrays: Vec<Array>,
    answer: Option<Answer>,
}

impl Drawing {
    /// Draws inputs from a seed, with the right answer to them.
    pub fn new<O: Op>(problem: &O::Problem, seed: u64) -> Result<Self, Error> {
        Self::inputs::<O>(problem, seed).answered::<O>(problem)
    }

    /// Draws inputs from a seed.
    pub(crate) fn inputs<O: Op>(problem: &O::Problem, seed: u64) -> Self {
        Drawing { arrays: O::draw(problem, &mut fastrand::Rng::with_seed(seed)), answer: None }
    }

    /// With the right answer, unless it has one.
    pub(crate) fn answered<O: Op>(mut self, problem: &O::Problem) -> Result<Self, Error> {
        let answer = self.answer.take().unwrap_or_else(|| O::answer(problem, &self.arrays));
        if answer.values.len() != O::output(problem).1 {
            return Err(Error::Device(format!("{}: the answer does not have the output's length", O::NAME)));
        }
        Ok(Drawing { answer: Some(answer), ..self })
    }
}

/// One drawing of inputs on a device, its poisoned output, and the right answer.
pub struct Case<O: Op, D: Device> {
    problem: O::Problem,
    inputs: Vec<(D::Buffer, usize)>,
    output: D::Buffer,
    dtype: DType,
    len: usize,
    poison: Array,
    // Where memory is far away, poison and drawings are kept there: a proof then brings the answer home and nothing else.
    blank: Option<D::Buffer>,
    drawing: Option<Arc<Drawing>>,
    // The right answer where the inputs are, if an oracle gave it.
    far: Option<Arc<Sealed<D>>>,
}

/// What a kernel left in the output.
pub(crate) enum Left {
    /// Brought home.
    Near(Array),
    /// Compared where it is.
    Far(Compared),
}

/// A drawing with a copy of its inputs on a device whose memory is far away, and the right answer to them.
pub(crate) struct Placed<D: Device> {
    drawing: Arc<Drawing>,
    buffers: Option<Vec<D::Buffer>>,
    far: Option<Arc<Sealed<D>>>,
}

impl<D: Device> Placed<D> {
    /// Puts a drawing on a device, where there is room for it, and finds the right answer: there, or else on the host.
    pub(crate) fn new<O: Op>(
        problem: &O::Problem,
        device: &D,
        oracle: Option<&dyn Oracle<O, D>>,
        drawing: Drawing,
    ) -> Result<Self, Error> {
        let upload = || drawing.arrays.iter().map(|a| device.upload_queued(a)).collect::<Result<Vec<_>, Error>>();
        let buffers = match if D::LAUNCH_IS_CALL { None } else { Some(upload()) } {
            Some(Err(why)) if oracle.is_some_and(|o| o.is_alone()) => return Err(why),
            uploaded => uploaded.and_then(Result::ok),
        };
        let far = match oracle.zip(buffers.as_ref()) {
            Some((oracle, buffers)) => {
                let inputs: Vec<&D::Buffer> = buffers.iter().collect();
                Sealed::new::<O>(oracle, problem, &inputs, device)?.map(Arc::new)
            }
            None => None,
        };
        let drawing = if far.is_some() { drawing } else { drawing.answered::<O>(problem)? };
        Ok(Placed { drawing: Arc::new(drawing), buffers, far })
    }
}

impl<O: Op, D: Device> Case<O, D> {
    /// Draws inputs from a seed, with the right answer to them.
    pub fn new(problem: &O::Problem, device: &D, seed: u64) -> Result<Self, Error> {
        Self::of(problem, device, &Arc::new(Drawing::new::<O>(problem, seed)?))
    }

    /// Puts a drawing on a device.
    pub fn of(problem: &O::Problem, device: &D, drawing: &Arc<Drawing>) -> Result<Self, Error> {
        let case = Self::upload(problem, device, &drawing.arrays)?;
        Ok(Case { drawing: Some(drawing.clone()), ..case })
    }

    /// Draws inputs for timing alone: nobody will ask for the answer.
    pub fn without_answer(problem: &O::Problem, device: &D, seed: u64) -> Result<Self, Error> {
        Self::upload(problem, device, &O::draw(problem, &mut fastrand::Rng::with_seed(seed)))
    }

    fn upload(problem: &O::Problem, device: &D, arrays: &[Array]) -> Result<Self, Error> {
        let (dtype, len) = O::output(problem);
        let mut poison = Array::filled(dtype, len + 2 * GUARD, poison_of(dtype));
        poison.fill(0..GUARD, GUARD_VALUE);
        poison.fill(GUARD + len..len + 2 * GUARD, GUARD_VALUE);
        let output = device.upload_queued(&poison)?;
        let inputs =
            arrays.iter().map(|a| Ok((device.upload_queued(a)?, a.len()))).collect::<Result<Vec<_>, Error>>()?;
        let (blank, drawing, far) = (None, None, None);
        Ok(Case { problem: problem.clone(), inputs, output, dtype, len, poison, blank, drawing, far })
    }

    /// Keeps a copy of the poisoned output on a device whose memory is far away, for many proofs.
    pub(crate) fn for_many(mut self, device: &D) -> Self {
        self.blank = if D::LAUNCH_IS_CALL { None } else { device.upload_queued(&self.poison).ok() };
        self
    }

    /// A case in memory of its own for drawings that were placed on the device.
    pub(crate) fn among(problem: &O::Problem, device: &D, placed: &Placed<D>) -> Result<Self, Error> {
        let mut case = Self::upload(problem, device, &placed.drawing.arrays)?;
        (case.drawing, case.far) = (Some(placed.drawing.clone()), placed.far.clone());
        Ok(case)
    }

    /// Puts a drawing into the same memory and finds the right answer to it: there, or else on the host.
    pub(crate) fn refill_asking(
        &mut self,
        device: &D,
        oracle: Option<&dyn Oracle<O, D>>,
        drawing: &Arc<Drawing>,
    ) -> Result<(), Error> {
        self.refill(device, drawing)?;
        let inputs: Vec<&D::Buffer> = self.inputs.iter().map(|(buffer, _)| buffer).collect();
        let far = oracle.map(|oracle| Sealed::new::<O>(oracle, &self.problem, &inputs, device)).transpose()?;
        match far.flatten() {
            Some(far) => self.far = Some(Arc::new(far)),
            None if drawing.answer.is_some() => {}
            None => self.drawing = Some(Arc::new(Drawing::clone(drawing).answered::<O>(&self.problem)?)),
        }
        Ok(())
    }

    /// Puts a drawing into the same memory, from its copy on the device where there is one.
    pub(crate) fn refill_from(&mut self, device: &D, placed: &Placed<D>) -> Result<(), Error> {
        let lengths = self.inputs.iter().zip(&placed.drawing.arrays);
        let Some(buffers) = placed.buffers.as_ref().filter(|_| lengths.clone().all(|((_, len), a)| *len == a.len()))
        else {
            self.refill(device, &placed.drawing)?;
            self.far = placed.far.clone();
            return Ok(());
        };
        for ((to, _), from) in self.inputs.iter_mut().zip(buffers) {
            device.copy(to, from)?;
        }
        (self.drawing, self.far) = (Some(placed.drawing.clone()), placed.far.clone());
        Ok(())
    }

    /// Puts another drawing into the same memory. Inputs whose length depends on the drawing get new memory.
    pub fn refill(&mut self, device: &D, drawing: &Arc<Drawing>) -> Result<(), Error> {
        for ((buffer, len), array) in self.inputs.iter_mut().zip(&drawing.arrays) {
            if *len == array.len() {
                device.write(buffer, array)?;
            } else {
                (*buffer, *len) = (device.upload_queued(array)?, array.len());
            }
        }
        (self.drawing, self.far) = (Some(drawing.clone()), None);
        Ok(())
    }

    /// Whether the inputs are still what was drawn: a kernel has no business writing there.
    pub fn inputs_untouched(&self, device: &D) -> Result<(), Rejection> {
        let Some(drawing) = &self.drawing else { return Ok(()) };
        for (i, ((buffer, _), array)) in self.inputs.iter().zip(&drawing.arrays).enumerate() {
            let same = match &self.far {
                Some(far) => device.seal(buffer).map(|seal| far.inputs.get(i) == Some(&seal)),
                None => device.download(buffer).map(|now| now.same(array)),
            };
            if !same.map_err(|e| Rejection::LaunchFailed { reason: e.to_string() })? {
                let reason = format!("wrote into its input {i}");
                return Err(Rejection::WrongAnswer { error: f64::INFINITY, allowed: 0.0, reason });
            }
        }
        Ok(())
    }

    /// The problem it was drawn for.
    pub fn problem(&self) -> &O::Problem {
        &self.problem
    }

    /// The right answer, where the host was asked for it.
    pub fn answer(&self) -> Option<&Answer> {
        self.drawing.as_ref().and_then(|d| d.answer.as_ref())
    }

    /// Launches a kernel on this case's buffers. A panic becomes a Rejection.
    pub fn launch(&mut self, kernel: &dyn Kernel<O, D>, device: &D, queue: &D::Queue) -> Result<(), Rejection> {
        let inputs = self.inputs.iter().map(|(b, len)| device.view(b, 0..*len)).collect();
        let output = device.view_mut(&mut self.output, GUARD..GUARD + self.len);
        let args = O::bind::<D>(&self.problem, inputs, output);
        contained(|| kernel.launch(args, queue))
    }

    /// Runs a kernel on a poisoned output and compares every element.
    pub fn verify(&mut self, kernel: &dyn Kernel<O, D>, device: &D) -> Result<Proof, Rejection> {
        let (left, seconds) = self.run(kernel, device)?;
        Ok(Proof { error: self.judge(left, device)?, seconds })
    }

    /// Runs a kernel on a poisoned output: what it left, and the seconds of the launch where it is a call.
    pub(crate) fn run(&mut self, kernel: &dyn Kernel<O, D>, device: &D) -> Result<(Left, Option<f64>), Rejection> {
        match &self.blank {
            Some(blank) => device.copy(&mut self.output, blank),
            None => device.write(&mut self.output, &self.poison),
        }
        .map_err(failed)?;
        let started = Instant::now();
        self.launch(kernel, device, device.queue())?;
        let seconds = D::LAUNCH_IS_CALL.then(|| started.elapsed().as_secs_f64());
        let left = match &self.far {
            Some(far) => {
                let bounds = far.bounds(GUARD, GUARD_VALUE);
                Left::Far(device.compare(&self.output, &far.answer.values, bounds).map_err(failed)?)
            }
            None => Left::Near(device.download(&self.output).map_err(failed)?),
        };
        Ok((left, seconds))
    }

    /// The largest share of the allowed error in what a kernel left.
    pub(crate) fn judge(&self, left: Left, device: &D) -> Result<f64, Rejection> {
        let wrong = |reason: &str| Rejection::WrongAnswer { error: f64::INFINITY, allowed: 0.0, reason: reason.into() };
        let compared = match (left, &self.far) {
            (Left::Far(compared), Some(far)) if compared.seal != far.seal => {
                return Err(wrong("wrote outside of its output, over the right answer"));
            }
            (Left::Far(compared), Some(_)) if compared.share <= 1.0 => return Ok(compared.share),
            (Left::Far(compared), Some(far)) => Some((compared, far)),
            (Left::Near(got), _) => {
                return self.judge_by(&got, self.answer().ok_or_else(|| wrong("no answer drawn"))?);
            }
            (Left::Far(_), None) => None,
        };
        let (compared, far) = compared.ok_or_else(|| wrong("no answer drawn"))?;
        // The host says in words what is wrong; it happens seldom.
        let got = device.download(&self.output).map_err(failed)?;
        let values = device.download(&far.answer.values).map_err(failed)?.to_f64();
        self.judge_by(&got, &Answer { values, tolerance: far.answer.tolerance })?;
        Err(wrong(&format!("{} times the allowed error, by the device's comparison", compared.share)))
    }

    /// Compares what came back with the right answer.
    fn judge_by(&self, got: &Array, answer: &Answer) -> Result<f64, Rejection> {
        let guard = Array::filled(self.dtype, 1, GUARD_VALUE).at(0);
        for i in (0..GUARD).chain(GUARD + self.len..self.len + 2 * GUARD) {
            if got.at(i) != guard {
                let place = i as i64 - GUARD as i64;
                return Err(Rejection::WrongAnswer {
                    error: f64::INFINITY,
                    allowed: 0.0,
                    reason: format!("wrote outside of its output, at element {place} of {}", self.len),
                });
            }
        }
        let (share, at) = worst(got, answer);
        if share <= 1.0 {
            return Ok(share);
        }
        let (value, right) = (got.at(GUARD + at), answer.values[at]);
        let reason = match (right.is_nan(), value.is_nan()) {
            (true, _) => format!("padding was written at element {at}"),
            (_, true) => format!("element {at} of {} is NaN or was never written", self.len),
            _ => format!("element {at} of {} is {value:e}, right is {right:e}", self.len),
        };
        Err(Rejection::WrongAnswer {
            error: (value - right).abs(),
            allowed: answer.tolerance.allowed(if right.is_nan() { 0.0 } else { right }),
            reason,
        })
    }

    /// Bytes of inputs and output together.
    pub fn footprint(&self) -> usize {
        self.poison.bytes() + self.inputs.iter().map(|(_, len)| len * self.dtype.bytes()).sum::<usize>()
    }
}

fn failed(error: Error) -> Rejection {
    Rejection::LaunchFailed { reason: error.to_string() }
}

/// Elements one thread compares: below it a thread costs more than it saves.
const PART: usize = 1 << 20;

/// The element with the largest share of the allowed error, and that share. Large outputs are compared on all cores.
fn worst(got: &Array, answer: &Answer) -> (f64, usize) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let part = answer.values.len().div_ceil(cores).max(PART);
    let parts: Vec<(usize, &[f64])> = answer.values.chunks(part).enumerate().map(|(i, p)| (i * part, p)).collect();
    let compared: Vec<(f64, usize)> = if parts.len() < 2 {
        parts.into_iter().map(|(start, part)| worst_of(got, answer, start, part)).collect()
    } else {
        std::thread::scope(|scope| {
            let each = |(start, part)| scope.spawn(move || worst_of(got, answer, start, part));
            let threads: Vec<_> = parts.into_iter().map(each).collect();
            // A comparison that panicked is not a right answer.
            threads.into_iter().map(|t| t.join().unwrap_or((f64::INFINITY, 0))).collect()
        })
    };
    // The first of equals, as one thread would find it.
    compared.into_iter().reduce(|a, b| if b.0 > a.0 { b } else { a }).unwrap_or((0.0, 0))
}

fn worst_of(got: &Array, answer: &Answer, start: usize, part: &[f64]) -> (f64, usize) {
    let mut worst: Option<(f64, usize)> = None;
    for (i, right) in part.iter().enumerate() {
        let value = got.at(GUARD + start + i);
        let share = if right.is_nan() {
            // Padding: must still be poison.
            if value.is_nan() { 0.0 } else { f64::INFINITY }
        } else {
            let error = (value - right).abs();
            // No error is right, also where none is allowed. NaN compares false: it must not slip through as "not larger".
            match error {
                0.0 => 0.0,
                error if error.is_nan() => f64::INFINITY,
                error => error / answer.tolerance.allowed(*right),
            }
        };
        if worst.is_none_or(|(w, _)| share > w) {
            worst = Some((share, start + i));
        }
    }
    worst.unwrap_or((0.0, 0))
}
