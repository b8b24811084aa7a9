//! The right answer to a softmax of rows, in double precision.

use rayon::prelude::*;
use warplap_core::array::Array;
use warplap_core::dtype::DType;
use warplap_core::op::Answer;
use warplap_core::tolerance::Tolerance;

use super::{SoftmaxProblem, slot};
use crate::host::in_parallel;

/// The right answer to inputs as drawn.
pub(super) fn answer(p: &SoftmaxProblem, inputs: &[Array]) -> Vec<Answer> {
    let (n, scale) = (p.n as usize, f64::from(p.scale()));
    let mask = (p.mask > 0).then(|| inputs[slot::MASK].to_f64());
    let mut values = inputs[slot::X].to_f64();
    let finish = |(row, values): (usize, &mut [f64])| {
        let line = mask.as_ref().map(|m| &m[p.mask_row(row as u64) as usize * n..][..n]);
        softmax(values, scale, line)
    };
    let reach = in_parallel(|| values.par_chunks_mut(n).enumerate().map(finish).reduce(|| 0.0, f64::max));
    vec![Answer { values, tolerance: tolerance(p, reach) }]
}

/// Softmax in place. Gives how far exponents reach: the largest sum of what they are computed of, where anything is
/// left of the result.
fn softmax(row: &mut [f64], scale: f64, mask: Option<&[f64]>) -> f64 {
    let added = |j: usize| mask.map_or(0.0, |m| m[j]);
    let score = |j: usize, x: f64| x * scale + added(j);
    let most = row.iter().enumerate().map(|(j, x)| score(j, *x)).fold(f64::NEG_INFINITY, f64::max);
    let mut reach = 0f64;
    for (j, x) in row.iter_mut().enumerate() {
        let own = (*x * scale).abs() + added(j).abs() + most.abs();
        *x = (score(j, *x) - most).exp();
        if *x > 1e-30 {
            reach = reach.max(own);
        }
    }
    let sum: f64 = row.iter().sum();
    row.iter_mut().for_each(|x| *x /= sum);
    reach
}

/// Safety factor over the expected rounding error of a sum in any order, as for products.
pub(crate) const GROWTH: f64 = 6.0;

/// How far y may be off: its own rounding, sums of n terms and exponentials in f32, and the rounding of exponents.
pub(super) fn tolerance(p: &SoftmaxProblem, reach: f64) -> Tolerance {
    let (own, wide) = (p.dtype.roundoff(), DType::F32.roundoff());
    let sums = GROWTH * wide * ((p.n as f64).sqrt() / 8.0).clamp(1.0, 32.0);
    // Rounding near zero is absolute: half the smallest f16, and f32 below its normal numbers.
    let smallest = if p.dtype == DType::F16 { 3.1e-8 } else { 3e-38 };
    Tolerance { relative: 2.0 * own + sums + 3.0 * wide * reach, floor: smallest }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
