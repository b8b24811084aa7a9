//! Right answers of a graph, and how far from them a chain may be. Each node's own operation answers, in double
//! precision and without rounding in between.
//!
//! A chain is off by what each of its launches is off by, carried through all that follow. How much that may be is not
//! guessed: the graph is answered again with every number between two nodes moved by what its own operation allows it,
//! and what that moves an output by, and half as much again, is allowed beside the last launch's own error. What is fused
//! rounds less often, not more.
//!
//! Among many elements some meet the errors that add up; of few ones none may. So small graphs are answered several
//! times: with errors of random signs, with all of one sign, and with all away from zero. Of large ones that compute
//! every row by itself some rows are enough to know how far errors go; the right answer is always that of all rows.

use std::borrow::Cow;

use rayon::prelude::*;
use warplap_core::array::Array;
use warplap_core::op::Answer;
use warplap_core::tolerance::Tolerance;
use warplap_ops::in_parallel;

use super::errors::Errors;
use super::node::Call;
use super::plan::Plan;
use super::sample::Sample;

/// What an output may be moved by, over what one drawing of errors moves it by.
const SPARE: f64 = 1.5;

/// Outputs of fewer elements are small.
const MANY: usize = 1 << 14;

/// The errors that a graph is answered with.
fn errors(plan: &Plan) -> Vec<Errors> {
    let least = plan.outputs.iter().map(|(_, value)| plan.values[*value].len).min().unwrap_or(0);
    match plan.nodes.len() {
        // One launch is off by its own error alone.
        0 | 1 => Vec::new(),
        _ if least >= MANY => vec![Errors::Any(1)],
        _ => (1..5).map(Errors::Signs).chain([Errors::Up, Errors::Away]).collect(),
    }
}

/// The right answers to inputs in the order of the plan's, one for each output.
pub(super) fn answers(plan: &Plan, inputs: &[Array]) -> Vec<Answer> {
    answered(plan, inputs, Sample::of(plan))
}

/// The same, where errors are carried through the rows of a sample alone, if there is one.
pub(super) fn answered(plan: &Plan, inputs: &[Array], sample: Option<Sample>) -> Vec<Answer> {
    let mut arrays: Vec<Array> = vec![Array::none(); plan.values.len()];
    // Widened once for all that follows.
    let wide = plan.inputs.iter().zip(inputs).map(|((_, value), array)| (*value, Array::F64(array.to_f64())));
    wide.for_each(|(value, array)| arrays[value] = array);
    let mut right = evaluated(plan, &mut arrays, None);
    let errors = errors(plan);
    let far = match sample.as_ref().filter(|_| !errors.is_empty()) {
        None => farthest(plan, &mut arrays, &errors, &right, |_, own| own.values.as_slice().into()),
        Some(sample) => {
            // Only inputs are left in the arrays.
            for (value, array) in arrays.iter_mut().enumerate() {
                sample.gather(value, array);
            }
            let far = farthest(&sample.plan, &mut arrays, &errors, &right, |value, own| {
                Cow::Owned(sample.rows_of(value, &own.values))
            });
            far.into_iter().zip(&plan.outputs).map(|(far, (_, value))| far * sample.grown(plan, *value)).collect()
        }
    };
    for (answer, far) in right.iter_mut().zip(far) {
        answer.tolerance.floor += SPARE * far;
    }
    right
}

/// How far errors move each output, at the most.
fn farthest<'r>(
    plan: &Plan,
    arrays: &mut [Array],
    errors: &[Errors],
    right: &'r [Answer],
    of: impl Fn(usize, &'r Answer) -> Cow<'r, [f64]>,
) -> Vec<f64> {
    let mut far = vec![0f64; plan.outputs.len()];
    for errors in errors {
        let moved = evaluated(plan, arrays, Some(*errors));
        for (i, (_, value)) in plan.outputs.iter().enumerate() {
            far[i] = far[i].max(distance(&of(*value, &right[i]), &moved[i].values));
        }
    }
    far
}

/// What every output is; where there are errors, before its own is put on it. Inputs stay in the arrays, everything
/// else goes as soon as nobody reads it any more.
fn evaluated(plan: &Plan, arrays: &mut [Array], errors: Option<Errors>) -> Vec<Answer> {
    let mut given: Vec<Answer> = plan.outputs.iter().map(|_| nothing()).collect();
    for (at, (node, call)) in plan.nodes.iter().zip(&plan.alone).enumerate() {
        let is_read = |value: &usize| plan.nodes[at + 1..].iter().any(|later| later.reads.contains(value));
        let slots = lent(call, arrays);
        let answers = call.task.answer(&slots);
        give_back(call, slots, arrays);
        for (mut answer, value) in answers.into_iter().zip(call.writes()) {
            let output = plan.outputs.iter().position(|(_, output)| *output == value);
            if !is_read(&value) {
                output.into_iter().for_each(|output| given[output] = std::mem::replace(&mut answer, nothing()));
                continue;
            }
            output.into_iter().for_each(|output| given[output] = answer.clone());
            if let Some(errors) = errors {
                errors.put_on(&mut answer.values, answer.tolerance, value);
            }
            arrays[value] = Array::F64(answer.values);
        }
        let is_input = |value: &usize| plan.inputs.iter().any(|(_, input)| input == value);
        let over = node.reads.iter().filter(|value| !is_read(value) && !is_input(value));
        over.for_each(|value| arrays[*value] = Array::none());
    }
    given
}

/// What a call reads, by slot; nothing is copied but what it reads twice.
fn lent(call: &Call, arrays: &mut [Array]) -> Vec<Array> {
    let mut slots: Vec<Array> = Vec::new();
    for (at, slot) in call.slots.iter().enumerate() {
        let before = call.slots[..at].iter().position(|other| slot.is_some() && other == slot);
        slots.push(match (slot, before) {
            (None, _) => Array::none(),
            (Some(_), Some(before)) => slots[before].clone(),
            (Some(value), None) => std::mem::replace(&mut arrays[*value], Array::none()),
        });
    }
    slots
}

fn give_back(call: &Call, slots: Vec<Array>, arrays: &mut [Array]) {
    // The first of those that are the same was lent.
    for (slot, array) in call.slots.iter().zip(slots).rev() {
        if let Some(value) = slot {
            arrays[*value] = array;
        }
    }
}

/// The largest difference.
fn distance(right: &[f64], moved: &[f64]) -> f64 {
    let off = |(a, b): (&f64, &f64)| Some((a - b).abs()).filter(|off| off.is_finite()).unwrap_or(0.0);
    in_parallel(|| right.par_iter().zip(moved).map(off).reduce(|| 0.0, f64::max))
}

fn nothing() -> Answer {
    Answer { values: Vec::new(), tolerance: Tolerance { relative: 0.0, floor: 0.0 } }
}
