//! The right answer to a normalisation, in double precision.

use rayon::prelude::*;
use warplap_core::array::Array;
use warplap_core::dtype::DType;
use warplap_core::op::Answer;
use warplap_core::tolerance::Tolerance;

use super::{Kind, NormProblem, Quant, quant, slot};
use crate::host::in_parallel;
use crate::philox::Dropout;

/// The right answer to inputs as drawn.
pub(super) fn answer(p: &NormProblem, inputs: &[Array]) -> Vec<Answer> {
    let n = p.n as usize;
    let columns = |slot: usize| (!inputs[slot].is_empty()).then(|| inputs[slot].to_f64());
    let (weight, bias) = (columns(slot::WEIGHT), columns(slot::BIAS));
    let (sum, terms) = sums(p, inputs);
    let (mut values, mut scales) = (sum.clone(), vec![0f64; p.rows as usize]);
    let finish = |((row, terms), scale): ((&mut [f64], &[f64]), &mut f64)| {
        let mut reach = normalised(p, row, terms);
        if let Some(weight) = &weight {
            row.iter_mut().zip(weight).for_each(|(y, w)| *y *= w);
        }
        if let Some(bias) = &bias {
            row.iter_mut().zip(bias).for_each(|(y, b)| *y += b);
        }
        if p.quant != Quant::None {
            (*scale, reach.inverse) = quant::coded(p.quant, row);
        }
        reach
    };
    let worst = in_parallel(|| {
        let rows = values.par_chunks_mut(n).zip(terms.par_chunks(n)).zip(&mut scales);
        rows.map(finish).reduce(Reach::default, Reach::or)
    });
    let largest = |of: &Option<Vec<f64>>| of.iter().flatten().fold(0f64, |most, v| most.max(v.abs()));
    let weight = if p.weight { largest(&weight) } else { 1.0 };
    let (tolerance, of_scales) = tolerances(p, worst, weight, largest(&bias));
    let mut answers = vec![Answer { values, tolerance }];
    if p.has_sum() {
        let most = terms.iter().copied().fold(0.0, f64::max);
        answers.push(Answer { values: sum, tolerance: sum_tolerance(p, most) });
    }
    if p.quant != Quant::None {
        answers.push(Answer { values: scales, tolerance: of_scales });
    }
    answers
}

/// What is normalised, and for each element of it the sum of the magnitudes it is made of.
fn sums(p: &NormProblem, inputs: &[Array]) -> (Vec<f64>, Vec<f64>) {
    let n = p.n as usize;
    let mut sum = inputs[slot::X].to_f64();
    let mut terms: Vec<f64> = in_parallel(|| sum.par_iter().map(|s| s.abs()).collect());
    let add = |sum: &mut f64, terms: &mut f64, x: f64| {
        *sum += x;
        *terms += x.abs();
    };
    if p.before {
        let before = inputs[slot::BEFORE].to_f64();
        sum.iter_mut().zip(&mut terms).enumerate().for_each(|(i, (s, t))| add(s, t, before[i % n]));
    }
    if p.dropout() > 0.0 {
        let seed = [0, 1].map(|i| inputs[slot::SEED].at(i) as i64 as u64);
        let mut factors = vec![0f32; sum.len()];
        Dropout::new(p.dropout()).factors(0, seed, &mut factors);
        sum.iter_mut().zip(&mut terms).zip(&factors).for_each(|((s, t), f)| {
            *s *= f64::from(*f);
            *t *= f64::from(*f);
        });
    }
    if p.residual {
        let residual = inputs[slot::RESIDUAL].wide();
        in_parallel(|| {
            let each = sum.par_iter_mut().zip(&mut terms).zip(&residual[..]);
            each.for_each(|((s, t), r)| add(s, t, *r));
        });
    }
    (sum, terms)
}

/// How far rows reach, which is what errors grow with.
#[derive(Clone, Copy, Default)]
pub(super) struct Reach {
    /// The largest element before the mean is taken away, in the unit of the norm.
    pub(super) before: f64,
    /// The largest sum of the magnitudes an element is made of, in the same unit.
    pub(super) terms: f64,
    /// The largest element of the norm.
    pub(super) after: f64,
    /// One over the largest of y in the row where that is least, and codes are most in error.
    pub(super) inverse: f64,
}

impl Reach {
    fn or(self, other: Reach) -> Reach {
        Reach {
            before: self.before.max(other.before),
            terms: self.terms.max(other.terms),
            after: self.after.max(other.after),
            inverse: self.inverse.max(other.inverse),
        }
    }
}

/// Normalises a row in place.
fn normalised(p: &NormProblem, row: &mut [f64], terms: &[f64]) -> Reach {
    let n = row.len() as f64;
    let mean = if p.kind == Kind::Layer { row.iter().sum::<f64>() / n } else { 0.0 };
    let square = row.iter().map(|s| (s - mean) * (s - mean)).sum::<f64>() / n;
    let inverse = 1.0 / (square + f64::from(p.eps())).sqrt();
    let terms = terms.iter().copied().fold(0.0, f64::max) * inverse;
    let mut reach = Reach { terms, ..Reach::default() };
    for s in row {
        reach.before = reach.before.max(s.abs() * inverse);
        *s = (*s - mean) * inverse;
        reach.after = reach.after.max(s.abs());
    }
    reach
}

/// Whether the sum has more steps than one addition, each of which is rounded to f32.
fn has_steps(p: &NormProblem) -> bool {
    p.before || p.dropout() > 0.0
}

/// How far the sum may be off: it is exact but for one rounding, and those of its steps where there are several;
/// `terms` is the largest sum of magnitudes an element is made of.
pub(super) fn sum_tolerance(p: &NormProblem, terms: f64) -> Tolerance {
    let floor = if has_steps(p) { 2.5 * DType::F32.roundoff() * terms } else { 0.0 };
    Tolerance { relative: 1.001 * p.dtype.roundoff(), floor }
}

/// Safety factor over the expected rounding error of a sum in any order, as for products.
const GROWTH: f64 = 6.0;

/// How far y may be off, and the factors of its codes: its own rounding, sums of n terms in f32, and in half types the
/// rounding of x + residual, which a kernel may normalise instead of the sum in f32, unless y is written as codes.
pub(super) fn tolerances(p: &NormProblem, reach: Reach, weight: f64, bias: f64) -> (Tolerance, Tolerance) {
    let own = if p.quant == Quant::None { p.dtype.roundoff() } else { 0.0 };
    let sums = GROWTH * DType::F32.roundoff() * ((p.n as f64).sqrt() / 8.0).clamp(1.0, 32.0);
    let rounded = if p.has_front() && p.dtype != DType::F32 { own } else { 0.0 };
    // Errors of a factor of the whole row stay in proportion to y, unless a bias is added afterwards. Those of the
    // mean, and of what it is taken away from, are in proportion to what was there before.
    let mut floor = 0.0;
    if p.bias {
        floor += (sums + rounded) * reach.after * weight + DType::F32.roundoff() * bias;
    }
    if p.kind == Kind::Layer {
        floor += (sums + 2.0 * rounded) * reach.before * weight;
    }
    if has_steps(p) {
        floor += 2.5 * DType::F32.roundoff() * reach.terms * weight;
    }
    if p.quant != Quant::None {
        return quant::allowed(p.quant, Tolerance { relative: sums, floor }, reach.inverse);
    }
    // Rounding near zero is absolute: half the smallest f16.
    let smallest = if p.dtype == DType::F16 { 2.99e-8 } else { 0.0 };
    let tolerance = Tolerance { relative: 2.0 * own + sums + 1.5 * rounded, floor: floor + smallest };
    (tolerance, tolerance)
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
