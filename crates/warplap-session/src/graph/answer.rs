//! Right answers of a graph, and how far from them a chain may be. Each node's own operation answers, in double
//! precision and without rounding in between.
//!
//! A chain is off by what each of its launches is off by, carried through all that follow. How much that may be is not
//! guessed: the graph is answered again with every number between two nodes moved by what its own operation allows it,
//! and what that moves an output by, and half as much again, is allowed beside the last launch's own error. What is fused
//! rounds less often, not more.
//!
//! Among many elements some meet the errors that add up; of few ones none may. So small graphs are answered several
//! times: with errors of random signs, with all of one sign, and with all away from zero.

use fastrand::Rng;
use warplap_core::array::Array;
use warplap_core::op::Answer;
use warplap_core::tolerance::Tolerance;

use super::plan::Plan;

/// What an output may be moved by, over what one drawing of errors moves it by.
const SPARE: f64 = 1.5;

/// Outputs of fewer elements are small.
const MANY: usize = 1 << 14;

/// How numbers between nodes are moved, as a share of what is allowed.
enum Errors {
    /// By anything.
    Any(Rng),
    /// By all of it, to either side.
    Signs(Rng),
    /// By all of it, to one side.
    Up,
    /// By all of it, away from zero.
    Away,
}

impl Errors {
    fn share(&mut self, value: f64) -> f64 {
        match self {
            Errors::Any(rng) => 2.0 * rng.f64() - 1.0,
            Errors::Signs(rng) => 2.0 * f64::from(u8::from(rng.bool())) - 1.0,
            Errors::Up => 1.0,
            Errors::Away => value.signum(),
        }
    }

    /// Those that a graph is answered with.
    fn of(plan: &Plan) -> Vec<Errors> {
        let least = plan.outputs.iter().map(|(_, value)| plan.values[*value].len).min().unwrap_or(0);
        match plan.nodes.len() {
            // One launch is off by its own error alone.
            0 | 1 => Vec::new(),
            _ if least >= MANY => vec![Errors::Any(Rng::with_seed(1))],
            _ => {
                let signs = (1..5).map(|seed| Errors::Signs(Rng::with_seed(seed)));
                signs.chain([Errors::Up, Errors::Away]).collect()
            }
        }
    }
}

/// The right answers to inputs in the order of the plan's, one for each output.
pub(super) fn answers(plan: &Plan, inputs: &[Array]) -> Vec<Answer> {
    let right = evaluated(plan, inputs, None);
    let moved = Errors::of(plan).into_iter().map(|errors| evaluated(plan, inputs, Some(errors)));
    let mut far = vec![0f64; plan.outputs.len()];
    for moved in moved {
        for (far, (_, value)) in far.iter_mut().zip(&plan.outputs) {
            *far = far.max(distance(right[*value].as_ref(), moved[*value].as_ref()));
        }
    }
    let answer = |((_, value), far): (&(String, usize), f64)| {
        let Answer { values, tolerance } = right[*value].clone().unwrap_or_else(nothing);
        Answer { values, tolerance: Tolerance { floor: tolerance.floor + SPARE * far, ..tolerance } }
    };
    plan.outputs.iter().zip(far).map(answer).collect()
}

/// What every node gives, by value; where there are errors, before its own is put on it.
fn evaluated(plan: &Plan, inputs: &[Array], mut errors: Option<Errors>) -> Vec<Option<Answer>> {
    let mut arrays: Vec<Array> = vec![Array::none(); plan.values.len()];
    plan.inputs.iter().zip(inputs).for_each(|((_, value), array)| arrays[*value] = array.clone());
    let mut given: Vec<Option<Answer>> = vec![None; plan.values.len()];
    for call in &plan.alone {
        let read = |slot: &Option<usize>| slot.map_or(Array::none(), |value| arrays[value].clone());
        let slots: Vec<Array> = call.slots.iter().map(read).collect();
        for (answer, value) in call.task.answer(&slots).into_iter().zip(call.writes()) {
            let mut values = answer.values.clone();
            if let Some(errors) = &mut errors {
                for value in values.iter_mut().filter(|value| value.is_finite()) {
                    *value += errors.share(*value) * answer.tolerance.allowed(*value);
                }
            }
            arrays[value] = Array::F64(values);
            given[value] = Some(answer);
        }
    }
    given
}

/// The largest difference.
fn distance(right: Option<&Answer>, moved: Option<&Answer>) -> f64 {
    let (Some(right), Some(moved)) = (right, moved) else { return 0.0 };
    let both = right.values.iter().zip(&moved.values).map(|(a, b)| (a - b).abs());
    both.filter(|off| off.is_finite()).fold(0.0, f64::max)
}

fn nothing() -> Answer {
    Answer { values: Vec::new(), tolerance: Tolerance { relative: 0.0, floor: 0.0 } }
}
