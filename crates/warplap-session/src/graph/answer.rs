//! Right answers of a graph, and how far from them a chain may be. Each node's own operation answers, in double
//! precision and without rounding in between.
//!
//! A chain is off by what each of its launches is off by, carried through all that follow. How much that may be is not
//! guessed: the graph is answered a second time with every number between two nodes moved at random by up to all that its
//! own operation allows it, and what that moves an output by, and half as much again, is allowed beside the last
//! launch's own error. Kernels stay well within what they are allowed, and what is fused rounds less often, not more.

use fastrand::Rng;
use warplap_core::array::Array;
use warplap_core::op::Answer;
use warplap_core::tolerance::Tolerance;

use super::plan::Plan;

/// What an output may be moved by, over what one drawing of errors moves it by.
const SPARE: f64 = 1.5;

/// Seed of errors.
const SEED: u64 = 0x6a09;

/// The right answers to inputs in the order of the plan's, one for each output.
pub(super) fn answers(plan: &Plan, inputs: &[Array]) -> Vec<Answer> {
    let right = evaluated(plan, inputs, None);
    // One launch is off by its own error alone.
    let moved = (plan.nodes.len() > 1).then(|| evaluated(plan, inputs, Some(Rng::with_seed(SEED))));
    let answer = |(_, value): &(String, usize)| {
        let own = right[*value].clone().unwrap_or_else(nothing);
        let far = moved.as_ref().and_then(|moved| moved[*value].as_ref()).map_or(0.0, |m| distance(&own, m));
        let Tolerance { relative, floor } = own.tolerance;
        Answer { values: own.values, tolerance: Tolerance { relative, floor: floor + SPARE * far } }
    };
    plan.outputs.iter().map(answer).collect()
}

/// What every node gives, by value; where there are errors, before its own is put on it.
fn evaluated(plan: &Plan, inputs: &[Array], mut errors: Option<Rng>) -> Vec<Option<Answer>> {
    let mut arrays: Vec<Array> = vec![Array::none(); plan.values.len()];
    plan.inputs.iter().zip(inputs).for_each(|((_, value), array)| arrays[*value] = array.clone());
    let mut given: Vec<Option<Answer>> = vec![None; plan.values.len()];
    for (node, call) in plan.nodes.iter().zip(&plan.alone) {
        let read = |slot: &Option<usize>| slot.map_or(Array::none(), |value| arrays[value].clone());
        let slots: Vec<Array> = call.slots.iter().map(read).collect();
        let Some(answer) = call.task.answer(&slots).into_iter().next() else { continue };
        let mut values = answer.values.clone();
        if let Some(rng) = &mut errors {
            for value in values.iter_mut().filter(|value| value.is_finite()) {
                *value += (2.0 * rng.f64() - 1.0) * answer.tolerance.allowed(*value);
            }
        }
        arrays[node.gives] = Array::F64(values);
        given[node.gives] = Some(answer);
    }
    given
}

/// The largest difference.
fn distance(right: &Answer, moved: &Answer) -> f64 {
    let both = right.values.iter().zip(&moved.values).map(|(a, b)| (a - b).abs());
    both.filter(|off| off.is_finite()).fold(0.0, f64::max)
}

fn nothing() -> Answer {
    Answer { values: Vec::new(), tolerance: Tolerance { relative: 0.0, floor: 0.0 } }
}
