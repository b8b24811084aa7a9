//! The right answer of cross entropy, in double precision on the host, and how far kernels may be from it.

use rayon::prelude::*;
use warplap_core::array::Array;
use warplap_core::dtype::DType;
use warplap_core::op::Answer;
use warplap_core::tolerance::Tolerance;

use super::{CrossEntropyProblem, Reduction, slot};
use crate::host::in_parallel;

/// How far rows reach, which is what errors grow with: the largest of each.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Reach {
    /// An exponent's logit and the largest logit of its row, where anything is left of the exponential.
    pub(super) exponent: f64,
    /// A log-sum-exp.
    pub(super) lse: f64,
    /// A logit that a label points to, or the mean of a row.
    pub(super) picked: f64,
    /// The probability of a label.
    pub(super) label: f64,
    /// A loss.
    pub(super) loss: f64,
}

impl Reach {
    fn or(self, other: Reach) -> Reach {
        Reach {
            exponent: self.exponent.max(other.exponent),
            lse: self.lse.max(other.lse),
            picked: self.picked.max(other.picked),
            label: self.label.max(other.label),
            loss: self.loss.max(other.loss),
        }
    }
}

/// What the total counts a row with, and its gradient.
pub(super) fn share(p: &CrossEntropyProblem, counted: u64) -> f64 {
    if p.reduction == Reduction::Mean { 1.0 / counted as f64 } else { 1.0 }
}

/// One answer for each slot that is written.
pub(super) fn answer(p: &CrossEntropyProblem, inputs: &[Array]) -> Vec<Answer> {
    let n = p.n as usize;
    let labels: Vec<i64> = inputs[slot::LABELS].to_f64().into_iter().map(|l| l as i64).collect();
    let counted = labels.iter().filter(|l| **l != p.ignore).count() as u64;
    let share = share(p, counted);
    let mut values = inputs[slot::LOGITS].to_f64();
    let rows = |values: &mut [f64]| {
        let rows = values.par_chunks_mut(n).zip(&labels);
        rows.map(|(x, label)| row(p, x, *label, share)).collect::<Vec<_>>()
    };
    let row_results: Vec<(f64, f64, Reach)> = in_parallel(|| rows(&mut values));
    let reach = row_results.iter().fold(Reach::default(), |most, (_, _, reach)| most.or(*reach));
    let losses: Vec<f64> = row_results.iter().map(|f| f.0).collect();
    let total = losses.iter().sum::<f64>() * share;
    let all = [values, losses, row_results.iter().map(|f| f.1).collect(), vec![total]];
    let answers = all.into_iter().zip(tolerances(p, reach, counted));
    in_order(p, answers.map(|(values, tolerance)| Answer { values, tolerance }).collect())
}

/// The gradient and the other answers, in the order of the slots that are written.
pub(super) fn in_order<T>(p: &CrossEntropyProblem, mut answers: Vec<T>) -> Vec<T> {
    match (p.grad, p.kept) {
        (true, true) => answers.rotate_left(1),
        (true, false) => {}
        (false, _) => drop(answers.remove(0)),
    }
    answers
}

/// The loss and the log-sum-exp of a row, whose gradient takes its place.
fn row(p: &CrossEntropyProblem, x: &mut [f64], label: i64, share: f64) -> (f64, f64, Reach) {
    let (s, z, n) = (f64::from(p.smoothing()), f64::from(p.zloss()), x.len() as f64);
    let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = x.iter().map(|x| (x - most).exp()).sum();
    let mean = x.iter().sum::<f64>() / n;
    let lse = most + sum.ln();
    let far = x.iter().filter(|x| (**x - most).exp() > 1e-30).fold(0f64, |far, x| far.max(x.abs()));
    let mut reach = Reach { exponent: far + most.abs(), lse: lse.abs(), ..Reach::default() };
    if label == p.ignore {
        x.fill(0.0);
        return (0.0, lse, reach);
    }
    let picked = x[label as usize];
    let loss = lse - (1.0 - s) * picked - s * mean + z * lse * lse;
    let mean = if s > 0.0 { mean.abs() } else { 0.0 };
    reach = Reach { picked: picked.abs().max(mean), label: (picked - lse).exp(), loss: loss.abs(), ..reach };
    for (j, x) in x.iter_mut().enumerate() {
        let hit = if j as i64 == label { 1.0 - s } else { 0.0 };
        *x = share * ((1.0 + 2.0 * z * lse) * (*x - lse).exp() - hit - s / n);
    }
    (loss, lse, reach)
}

/// Safety factor over the expected rounding error of a sum in any order, as for products.
const GROWTH: f64 = 6.0;

/// How far the gradient, losses, log-sum-exps and the total may be off.
pub(super) fn tolerances(p: &CrossEntropyProblem, reach: Reach, counted: u64) -> [Tolerance; 4] {
    let (own, wide) = (p.dtype.roundoff(), DType::F32.roundoff());
    let (s, z) = (f64::from(p.smoothing()), f64::from(p.zloss()));
    let steps = |terms: f64| (terms.sqrt() / 8.0).clamp(1.0, 32.0);
    // A sum of exponentials is off by a share of itself, its logarithm by as much in absolute terms.
    let sums = GROWTH * wide * steps(p.n as f64) + 3.0 * wide * reach.exponent;
    let lse = Tolerance { relative: 4.0 * wide, floor: sums };
    let means = if s > 0.0 { GROWTH * wide * steps(p.n as f64) * reach.picked } else { 0.0 };
    let squares = 2.0 * z * reach.lse * (sums + 4.0 * wide * reach.lse);
    let losses = sums + 4.0 * wide * (reach.lse + reach.picked) + means + squares;
    let loss = Tolerance { relative: 4.0 * wide, floor: losses };
    let rows = if p.reduction == Reduction::Mean { 1.0 } else { counted as f64 };
    let added = GROWTH * wide * steps(counted as f64) * reach.loss;
    let total = Tolerance { relative: 4.0 * wide, floor: rows * (losses + added) };
    // Where a label or the smoothing is taken away from a probability, little may be left.
    let share = share(p, counted);
    let off = sums + 8.0 * wide + 2.0 * z * (sums + 4.0 * wide * reach.lse);
    let lost = (1.0 + 2.0 * z * reach.lse) * (reach.label + s / p.n as f64) + 1e-3 * s;
    let smallest = if p.dtype == DType::F16 { 3.1e-8 } else { 3e-38 };
    let floor = share * (off * lost + 4.0 * wide * reach.label) + smallest;
    [Tolerance { relative: 2.0 * own + off, floor }, loss, lse, total]
}

#[cfg(test)]
mod tests {
    use super::super::CrossEntropy;
    use super::*;
    use warplap_core::op::Op;

    fn worst(answer: &Answer, got: &[f64]) -> f64 {
        let share = |(got, right): (&f64, &f64)| (got - right).abs() / answer.tolerance.allowed(*right);
        got.iter().zip(&answer.values).map(share).fold(0.0, f64::max)
    }

    fn cases() -> impl Iterator<Item = (String, CrossEntropyProblem, Vec<Array>)> {
        let all = ["f32", "f16", "bf16"].into_iter().flat_map(|dtype| {
            ["", ",reduction=sum", ",smoothing=0.1", ",zloss=0.01,ignore=3", ",smoothing=0.2,zloss=0.001,labels=i32"]
                .map(|rest| format!("rows=12,n=200,grad=true,dtype={dtype}{rest}"))
        });
        all.map(|text| {
            let p = CrossEntropy::parse(&text).unwrap();
            let inputs = CrossEntropy::draw(&p, &mut fastrand::Rng::with_seed(4));
            (text, p, inputs)
        })
    }

    fn not_ignoring(mut p: CrossEntropyProblem) -> CrossEntropyProblem {
        p.ignore = -7;
        p
    }

    #[test]
    fn the_gradient_is_the_slope_of_the_total() {
        for (text, p, inputs) in cases().filter(|(_, p, _)| p.dtype == DType::F32) {
            let total = |at: usize, by: f64| {
                let mut moved = inputs.clone();
                let moves = moved[slot::LOGITS].to_f64().into_iter().enumerate();
                moved[slot::LOGITS] = Array::F64(moves.map(|(i, x)| if i == at { x + by } else { x }).collect());
                answer(&p, &moved)[3].values[0]
            };
            let gradient = &answer(&p, &inputs)[0].values;
            let label = inputs[slot::LABELS].at(0) as usize;
            for at in [0, 7, 150, label, 200 + 33, 2399] {
                let slope = (total(at, 1e-4) - total(at, -1e-4)) / 2e-4;
                assert!((slope - gradient[at]).abs() < 1e-7, "{text}: {slope} and {}", gradient[at]);
            }
        }
    }

    #[test]
    fn rounded_answers_pass_and_what_is_left_out_shows() {
        for (text, p, inputs) in cases() {
            let right = answer(&p, &inputs);
            let types = [p.dtype, DType::F32, DType::F32, DType::F32];
            for (answer, dtype) in right.iter().zip(types) {
                let stored = Array::from_f64(dtype, answer.values.iter().copied()).to_f64();
                assert!(worst(answer, &stored) <= 1.0, "{text}: rounded");
            }
            let others = [
                ("smoothing", p.with_smoothing(p.smoothing() + 0.05)),
                ("zloss", p.with_zloss(p.zloss() + 0.01)),
                ("ignore", (p.ignore == 3).then(|| not_ignoring(p))),
            ];
            for (what, other) in others.into_iter().filter_map(|(what, other)| Some((what, other?))) {
                let other = answer(&other, &inputs);
                for i in [0, 1, 3] {
                    assert!(worst(&right[i], &other[i].values) > 1.0, "{text}: another {what} in answer {i}");
                }
            }
            let mut unhit = right[0].values.clone();
            let label = inputs[slot::LABELS].at(0) as usize;
            unhit[label] = unhit[(label + 1) % 200];
            assert!(worst(&right[0], &unhit) > 1.0, "{text}: a label that nobody took away");
        }
    }
}
