//! Verify: a kernel and right answers come in; "right" or a WrongAnswer goes out.
//!
//! Inputs are fresh and random, outputs are poisoned with NaN, and guard bands on both sides of them must come back
//! untouched. A kernel is proved on two drawings in the same memory: what it remembers of the first is wrong the second
//! time.

use crate::candidates::variant::Kernel;
pub use crate::candidates::variant::Proof;
use crate::device::{Compared, Device};
use crate::error::Error;
use crate::model::array::Array;
use crate::model::erased::ErasedProblem;
use crate::model::op::Answer;
use crate::model::slot::{Role, Slot};
use crate::model::tolerance::Tolerance;
pub use crate::prove::case::{Case, Drawing, poison_of};
use crate::prove::case::{GUARD, Left, failed, guard_value};
use crate::prove::oracle::FarAnswer;
pub use crate::prove::panics::contained;
use crate::rejection::Rejection;

/// How much more than the allowed error two launches in a row may be off.
const ENLARGED: f64 = 100.0;

fn wrong(reason: impl Into<String>) -> Rejection {
    Rejection::WrongAnswer { error: f64::INFINITY, allowed: 0.0, reason: reason.into() }
}

impl<D: Device> Case<D> {
    /// Runs a kernel on poisoned outputs and compares every element.
    pub fn verify(&mut self, kernel: &dyn Kernel<D>, device: &D) -> Result<Proof, Rejection> {
        let (left, seconds) = self.run(kernel, device)?;
        Ok(Proof { error: self.judge(left, device)?, seconds })
    }

    /// Whether kernels change an argument in place: after many launches it has no right answer.
    pub(crate) fn changes_in_place(&self) -> bool {
        self.signature.slots().iter().any(|slot| slot.role == Role::InOut)
    }

    /// Compares what timed launches have left with the right answers to the inputs as they are now.
    pub(crate) fn verify_as_left(&self, device: &D) -> Result<(), Rejection> {
        self.judge(self.left(device)?, device).map(drop).map_err(as_left)
    }

    /// Compares what one launch or two in a row have left, on what was drawn, with the answer to it or to that answer.
    pub(crate) fn verify_repeated(
        &mut self,
        problem: &dyn ErasedProblem<D>,
        device: &D,
        launches: u32,
    ) -> Result<Result<(), Rejection>, Error> {
        self.fresh = false;
        let drawn = self.drawing.as_ref().and_then(|drawing| Some((drawing, drawing.answers.as_ref()?)));
        let (Some((drawing, once)), 1 | 2) = (drawn, launches) else { return Ok(Ok(())) };
        let mut right = once.clone();
        if launches == 2 {
            let (mut arrays, mut answers) = (drawing.arrays.clone(), once.iter());
            for (slot, array) in self.signature.slots().iter().zip(&mut arrays).filter(|(slot, _)| slot.is_written()) {
                if let Some(answer) = answers.next().filter(|_| slot.role == Role::InOut) {
                    *array = Array::from_f64(slot.dtype, answer.values.iter().copied());
                }
            }
            right = Drawing { arrays, answers: None }.answered(problem)?.answers.unwrap_or_default();
        }
        // What a first launch rounds a second one may enlarge; and where it overflows nobody knows what is right.
        for answer in &mut right {
            let Tolerance { relative, floor } = answer.tolerance;
            answer.tolerance = Tolerance { relative: ENLARGED * relative, floor: ENLARGED * floor };
        }
        let finite = |answer: &Answer| answer.values.iter().all(|value| value.is_finite());
        if !right.iter().all(finite) {
            return Ok(Ok(()));
        }
        let Left::Near(got) = (match self.left(device) {
            Ok(left) => left,
            Err(rejection) => return Ok(Err(rejection)),
        }) else {
            return Ok(Ok(()));
        };
        let written = self.signature.slots().iter().filter(|slot| slot.is_written());
        let mut each = got.iter().zip(&right).zip(written);
        Ok(each.try_for_each(|((got, answer), slot)| judge_by(got, answer, slot).map(drop).map_err(as_left)))
    }

    /// The largest share of the allowed error in what a kernel left.
    pub(crate) fn judge(&self, left: Left, device: &D) -> Result<f64, Rejection> {
        let written: Vec<(&Slot, Option<&D::Buffer>)> = self
            .signature
            .slots()
            .iter()
            .zip(&self.buffers)
            .filter(|(slot, _)| slot.is_written())
            .map(|(slot, buffer)| (slot, buffer.as_ref()))
            .collect();
        // Where there are several, the one that is wrong is named.
        let several = written.len() > 1;
        let mut error = 0f64;
        match (left, &self.far) {
            (Left::Far(compared), Some(far)) => {
                if compared.iter().zip(&far.seals).any(|(compared, seal)| compared.seal != *seal) {
                    return Err(wrong("wrote outside of its output, over the right answer"));
                }
                for ((compared, right), (slot, buffer)) in compared.iter().zip(&far.answers).zip(written) {
                    let share = share(compared, right, slot, buffer, device).map_err(|e| named(e, slot, several))?;
                    error = error.max(share);
                }
            }
            (Left::Near(got), _) => {
                let answers = self.answers().ok_or_else(|| wrong("no answer drawn"))?;
                for ((got, answer), (slot, _)) in got.iter().zip(answers).zip(written) {
                    error = error.max(judge_by(got, answer, slot).map_err(|e| named(e, slot, several))?);
                }
            }
            (Left::Judged(share), _) => error = share,
            (Left::Far(_), None) => return Err(wrong("no answer drawn")),
        }
        Ok(error)
    }

    /// Whether the inputs are still what was drawn: a kernel has no business writing there.
    pub fn inputs_untouched(&self, device: &D) -> Result<(), Rejection> {
        let Some(drawing) = &self.drawing else { return Ok(()) };
        let slots = self.signature.slots().iter().zip(&self.buffers).zip(&drawing.arrays).enumerate();
        for (i, ((slot, buffer), array)) in slots.filter(|(_, ((slot, _), _))| slot.role == Role::In) {
            let Some(buffer) = buffer else { continue };
            let same = match &self.far {
                Some(far) => device.seal(buffer).map(|seal| far.inputs.get(i) == Some(&Some(seal))),
                // Bytes, where numbers may be NaN.
                None => device.download(buffer).map(|now| now.same(array) || now.to_bytes() == array.to_bytes()),
            };
            if !same.map_err(failed)? {
                return Err(wrong(format!("wrote into its input '{}'", slot.name)));
            }
        }
        Ok(())
    }
}

/// A wrong answer of timed launches.
fn as_left(rejection: Rejection) -> Rejection {
    match rejection {
        Rejection::WrongAnswer { error, allowed, reason } => {
            Rejection::WrongAnswer { error, allowed, reason: format!("as its timed launches left it: {reason}") }
        }
        other => other,
    }
}

/// A wrong answer with the name of its slot in front.
fn named(rejection: Rejection, slot: &Slot, several: bool) -> Rejection {
    match rejection {
        Rejection::WrongAnswer { error, allowed, reason } if several => {
            Rejection::WrongAnswer { error, allowed, reason: format!("{}: {reason}", slot.name) }
        }
        other => other,
    }
}

/// The share of the allowed error by the device's own comparison. The host says in words what is wrong; it happens
/// seldom.
fn share<D: Device>(
    compared: &Compared,
    right: &FarAnswer<D>,
    slot: &Slot,
    output: Option<&D::Buffer>,
    device: &D,
) -> Result<f64, Rejection> {
    if compared.share <= 1.0 {
        return Ok(compared.share);
    }
    let got = device.download(output.ok_or_else(|| wrong("no output"))?).map_err(failed)?;
    let values = device.download(&right.values).map_err(failed)?.to_f64();
    judge_by(&got, &Answer { values, tolerance: right.tolerance }, slot)?;
    Err(wrong(format!("{} times the allowed error, by the device's comparison", compared.share)))
}

/// Compares what came back of a slot with the right answer.
fn judge_by(got: &Array, answer: &Answer, slot: &Slot) -> Result<f64, Rejection> {
    let (len, guard) = (answer.values.len(), Array::filled(slot.dtype, 1, guard_value(slot.dtype)).at(0));
    for i in (0..GUARD).chain(GUARD + len..len + 2 * GUARD) {
        if got.at(i) != guard {
            let place = i as i64 - GUARD as i64;
            return Err(wrong(format!("wrote outside of its output, at element {place} of {len}")));
        }
    }
    let (share, at) = worst(got, answer);
    if share <= 1.0 {
        return Ok(share);
    }
    let (value, right) = (got.at(GUARD + at), answer.values[at]);
    let reason = match (right.is_nan(), value.is_nan()) {
        (true, _) => format!("padding was written at element {at}"),
        (_, true) => format!("element {at} of {len} is NaN or was never written"),
        _ => format!("element {at} of {len} is {value:e}, right is {right:e}"),
    };
    Err(Rejection::WrongAnswer {
        error: (value - right).abs(),
        allowed: answer.tolerance.allowed(if right.is_nan() { 0.0 } else { right }),
        reason,
    })
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
    let poison = poison_of(got.dtype());
    for (i, right) in part.iter().enumerate() {
        let value = got.at(GUARD + start + i);
        let share = if right.is_nan() {
            // Padding: must still be poison.
            if value == poison || value.is_nan() && poison.is_nan() { 0.0 } else { f64::INFINITY }
        } else {
            // The same is right, also where no error is allowed; beside an infinity nothing else is. NaN compares false:
            // it must not slip through as "not larger".
            let error = (value - right).abs();
            match error {
                _ if value == *right => 0.0,
                error if error.is_nan() || right.is_infinite() => f64::INFINITY,
                error => error / answer.tolerance.allowed(*right),
            }
        };
        if worst.is_none_or(|(w, _)| share > w) {
            worst = Some((share, start + i));
        }
    }
    worst.unwrap_or((0.0, 0))
}
