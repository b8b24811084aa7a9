//! Right answers of a graph, and how far from them a chain may be, wherever its numbers lie. Each node's own operation
//! answers, in double precision and without rounding in between.
//!
//! A chain is off by what each of its launches is off by, carried through all that follow. How much that may be is not
//! guessed: the graph is answered again with every number between two nodes moved by what its own operation allows it,
//! and what that moves an output by, and half as much again, is allowed beside the last launch's own error. What is fused
//! rounds less often, not more.
//!
//! Among many elements some meet the errors that add up; of few ones none may. So small graphs are answered several
//! times: with errors of random signs, with all of one sign, and with all away from zero.

use warplap_core::shift::Shift;
use warplap_core::tolerance::Tolerance;

use crate::node::Call;
use crate::plan::Plan;

/// What an output may be moved by, over what one drawing of errors moves it by.
const SPARE: f64 = 1.5;

/// Outputs of fewer elements are small.
const MANY: usize = 1 << 14;

/// Where the numbers of a graph lie, and who answers there.
pub(crate) trait Place {
    /// The numbers of one value, in double precision.
    type Numbers;
    /// Why there is no answer.
    type Trouble;

    /// The right answers of a call's own operation, one for each value it writes. What it reads is among all values,
    /// and stays there.
    fn answer(&self, call: &Call, all: &mut [Option<Self::Numbers>]) -> Result<Answers<Self::Numbers>, Self::Trouble>;

    /// The same numbers once more.
    fn copied(&self, numbers: &Self::Numbers) -> Result<Self::Numbers, Self::Trouble>;

    /// Moves the numbers of a value by what they may be off by.
    fn shift(
        &self,
        numbers: &mut Self::Numbers,
        shift: Shift,
        value: usize,
        tolerance: Tolerance,
    ) -> Result<(), Self::Trouble>;

    /// The largest finite difference.
    fn distance(&self, a: &Self::Numbers, b: &Self::Numbers) -> Result<f64, Self::Trouble>;
}

/// Numbers, and how far each may be off.
pub(crate) type Answers<N> = Vec<(N, Tolerance)>;

/// How numbers between nodes are moved, once after the other.
pub(crate) fn shifts(plan: &Plan) -> Vec<Shift> {
    let least = plan.outputs.iter().map(|(_, value)| plan.values[*value].len).min().unwrap_or(0);
    match plan.nodes.len() {
        // One launch is off by its own error alone.
        0 | 1 => Vec::new(),
        _ if least >= MANY => vec![Shift::Any(1)],
        _ => (1..5).map(Shift::Signs).chain([Shift::Up, Shift::Away]).collect(),
    }
}

/// The right answers, one for each output, and how far a chain may be from them. Of all values the inputs are there.
pub(crate) fn answered<P: Place>(
    place: &P,
    plan: &Plan,
    all: &mut [Option<P::Numbers>],
) -> Result<Answers<P::Numbers>, P::Trouble> {
    let mut right = evaluated(place, plan, all, None)?;
    let rows: Vec<&P::Numbers> = right.iter().map(|(numbers, _)| numbers).collect();
    let far = farthest(place, plan, all, &shifts(plan), &rows)?;
    allow(&mut right, far);
    Ok(right)
}

/// Allows beside each output's own error what those before it do.
pub(crate) fn allow<N>(right: &mut Answers<N>, far: impl IntoIterator<Item = f64>) {
    for ((_, tolerance), far) in right.iter_mut().zip(far) {
        tolerance.floor += SPARE * far;
    }
}

/// How far errors move each output from what is right, at the most.
pub(crate) fn farthest<P: Place>(
    place: &P,
    plan: &Plan,
    all: &mut [Option<P::Numbers>],
    shifts: &[Shift],
    right: &[&P::Numbers],
) -> Result<Vec<f64>, P::Trouble> {
    let mut far = vec![0f64; right.len()];
    for shift in shifts {
        let moved = evaluated(place, plan, all, Some(*shift))?;
        for ((far, right), (moved, _)) in far.iter_mut().zip(right).zip(&moved) {
            *far = far.max(place.distance(right, moved)?);
        }
    }
    Ok(far)
}

/// What every output is; where numbers are moved, before it is itself. Inputs stay among all values, everything else
/// goes as soon as nobody reads it any more.
pub(crate) fn evaluated<P: Place>(
    place: &P,
    plan: &Plan,
    all: &mut [Option<P::Numbers>],
    shift: Option<Shift>,
) -> Result<Answers<P::Numbers>, P::Trouble> {
    let mut arguments = Vec::new();
    for (at, (node, call)) in plan.nodes.iter().zip(&plan.alone).enumerate() {
        let is_read = |value: &usize| plan.nodes[at + 1..].iter().any(|later| later.reads.contains(value));
        for ((mut numbers, tolerance), value) in place.answer(call, all)?.into_iter().zip(call.writes()) {
            let output = plan.outputs.iter().position(|(_, output)| *output == value);
            if !is_read(&value) {
                arguments.extend(output.map(|output| (output, numbers, tolerance)));
                continue;
            }
            if let Some(output) = output {
                arguments.push((output, place.copied(&numbers)?, tolerance));
            }
            if let Some(shift) = shift {
                place.shift(&mut numbers, shift, value, tolerance)?;
            }
            all[value] = Some(numbers);
        }
        let is_input = |value: &usize| plan.inputs.iter().any(|(_, input)| input == value);
        let over = node.reads.iter().filter(|value| !is_read(value) && !is_input(value));
        over.for_each(|value| all[*value] = None);
    }
    arguments.sort_by_key(|(output, ..)| *output);
    Ok(arguments.into_iter().map(|(_, numbers, tolerance)| (numbers, tolerance)).collect())
}
