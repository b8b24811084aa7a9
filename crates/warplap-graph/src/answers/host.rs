//! Right answers of a graph on the host. Arrays in the order of the plan's inputs come in, an answer for each output
//! goes out.
//!
//! Of large graphs that compute every row by itself some rows are enough to know how far errors go; the right answer is
//! always that of all rows.

use std::convert::Infallible;

use rayon::prelude::*;
use warplap_core::array::Array;
use warplap_core::op::Answer;
use warplap_core::shift::Shift;
use warplap_core::tolerance::Tolerance;
use warplap_ops::in_parallel;

use crate::answer::{Answers, Place, allow, evaluated, farthest, shifts};
use crate::node::Call;
use crate::plan::Plan;
use crate::sample::Sample;

/// Numbers that are moved by one thread at a time.
const PART: usize = 1 << 16;

/// Host memory, and the operations' answers there.
struct Host;

/// The right answers to inputs in the order of the plan's, one for each output.
pub(crate) fn answers(plan: &Plan, inputs: &[Array]) -> Vec<Answer> {
    answered(plan, inputs, Sample::of(plan))
}

/// The same, where errors are carried through the rows of a sample alone, if there is one.
pub(crate) fn answered(plan: &Plan, inputs: &[Array], sample: Option<Sample>) -> Vec<Answer> {
    let mut all: Vec<Option<Array>> = vec![None; plan.values.len()];
    // Widened once for all that follows.
    let wide = plan.inputs.iter().zip(inputs).map(|((_, value), array)| (*value, Array::F64(array.to_f64())));
    wide.for_each(|(value, array)| all[value] = Some(array));
    let Ok(mut right) = evaluated(&Host, plan, &mut all, None);
    let shifts = shifts(plan);
    let far = match sample.as_ref().filter(|_| !shifts.is_empty()) {
        None => {
            let numbers: Vec<&Array> = right.iter().map(|(numbers, _)| numbers).collect();
            let Ok(far) = farthest(&Host, plan, &mut all, &shifts, &numbers);
            far
        }
        Some(sample) => {
            // Only inputs are left.
            for (value, array) in all.iter_mut().enumerate() {
                array.iter_mut().for_each(|array| sample.gather(value, array));
            }
            let some = |((numbers, _), (_, value)): (&(Array, Tolerance), &(String, usize))| {
                Array::F64(sample.rows_of(*value, &numbers.wide()))
            };
            let some: Vec<Array> = right.iter().zip(&plan.outputs).map(some).collect();
            let Ok(far) = farthest(&Host, &sample.plan, &mut all, &shifts, &some.iter().collect::<Vec<_>>());
            far.into_iter().zip(&plan.outputs).map(|(far, (_, value))| far * sample.grown(plan, *value)).collect()
        }
    };
    allow(&mut right, far);
    right.into_iter().map(|(numbers, tolerance)| Answer { values: doubles(numbers), tolerance }).collect()
}

impl Place for Host {
    type Numbers = Array;
    type Trouble = Infallible;

    fn answer(&self, call: &Call, all: &mut [Option<Array>]) -> Result<Answers<Array>, Infallible> {
        let slots = kernel_inputs(call, all);
        let answers = call.task.answer(&slots);
        give_back(call, slots, all);
        Ok(answers.into_iter().map(|answer| (Array::F64(answer.values), answer.tolerance)).collect())
    }

    fn copied(&self, numbers: &Array) -> Result<Array, Infallible> {
        Ok(numbers.clone())
    }

    fn shift(&self, numbers: &mut Array, shift: Shift, value: usize, tolerance: Tolerance) -> Result<(), Infallible> {
        let stream = shift.stream(value as u64);
        if let Array::F64(numbers) = numbers {
            let each = |(part, numbers): (usize, &mut [f64])| {
                shift.put_on(numbers, stream, (part * PART) as u64, tolerance);
            };
            in_parallel(|| numbers.par_chunks_mut(PART).enumerate().for_each(each));
        }
        Ok(())
    }

    fn distance(&self, a: &Array, b: &Array) -> Result<f64, Infallible> {
        let off = |(a, b): (&f64, &f64)| Some((a - b).abs()).filter(|off| off.is_finite()).unwrap_or(0.0);
        let (a, b) = (a.wide(), b.wide());
        Ok(in_parallel(|| a.par_iter().zip(&*b).map(off).reduce(|| 0.0, f64::max)))
    }
}

/// What a call reads, by slot; nothing is copied but what it reads twice.
fn kernel_inputs(call: &Call, all: &mut [Option<Array>]) -> Vec<Array> {
    let mut slots: Vec<Array> = Vec::new();
    for (at, slot) in call.slots.iter().enumerate() {
        let before = call.slots[..at].iter().position(|other| slot.is_some() && other == slot);
        slots.push(match (slot, before) {
            (None, _) => Array::none(),
            (Some(_), Some(before)) => slots[before].clone(),
            (Some(value), None) => all[*value].take().unwrap_or_else(Array::none),
        });
    }
    slots
}

fn give_back(call: &Call, slots: Vec<Array>, all: &mut [Option<Array>]) {
    // The first of those that are the same was lent; nothing was where one is written.
    for (slot, array) in call.slots.iter().zip(slots).rev() {
        if let Some(value) = slot {
            all[*value] = Some(array).filter(|array| !array.is_empty());
        }
    }
}

fn doubles(array: Array) -> Vec<f64> {
    match array {
        Array::F64(numbers) => numbers,
        other => other.to_f64(),
    }
}
