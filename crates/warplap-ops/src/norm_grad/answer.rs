//! The right answer of a norm's gradients, in double precision on the host, and how far kernels may be from it.

use rayon::prelude::*;
use warplap_core::array::Array;
use warplap_core::dtype::DType;
use warplap_core::op::Answer;
use warplap_core::tolerance::Tolerance;

use super::{NormGradProblem, slot};
use crate::host::in_parallel;
use crate::norm::Kind;
use crate::philox::Dropout;

/// How far rows reach, which is what errors grow with: the largest of each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reach {
    /// One over what a row was divided by.
    pub(super) inverse: f64,
    /// An element of s, in the unit of the norm.
    pub(super) before: f64,
    /// An element of the norm.
    pub(super) normed: f64,
    /// An element of the gradient times its weight.
    pub(super) grad: f64,
}

impl Reach {
    fn or(self, other: Reach) -> Reach {
        Reach {
            inverse: self.inverse.max(other.inverse),
            before: self.before.max(other.before),
            normed: self.normed.max(other.normed),
            grad: self.grad.max(other.grad),
        }
    }
}

/// One answer for each slot that is written.
pub(super) fn answer(p: &NormGradProblem, inputs: &[Array]) -> Vec<Answer> {
    let (norm, n) = (&p.norm, p.norm.n as usize);
    let read = |slot: usize| inputs[slot].to_f64();
    let (grad, weight, total) = (read(slot::GRAD), read(slot::WEIGHT), read(slot::TOTAL));
    let mut normed = read(slot::S);
    let mut ds = vec![0f64; normed.len()];
    let rows = |(row, (h, ds)): (usize, (&mut [f64], &mut [f64]))| {
        let g: Vec<f64> = (0..n).map(|j| grad[row * n + j] * if norm.weight { weight[j] } else { 1.0 }).collect();
        let reach = slopes(p, h, &g, ds);
        if p.total {
            ds.iter_mut().zip(&total[row * n..]).for_each(|(ds, t)| *ds += t);
        }
        reach
    };
    let each = |normed: &mut [f64], ds: &mut [f64]| {
        let both = normed.par_chunks_mut(n).zip(ds.par_chunks_mut(n)).enumerate();
        both.map(rows).reduce(Reach::default, Reach::or)
    };
    let reach = in_parallel(|| each(&mut normed, &mut ds));
    let (mut dweight, mut dbias, mut all) = (vec![0f64; n], vec![0f64; n], vec![0f64; n]);
    for (h, g) in normed.chunks(n).zip(grad.chunks(n)) {
        for j in 0..n {
            dweight[j] += h[j] * g[j];
            dbias[j] += g[j];
            all[j] += g[j].abs();
        }
    }
    let column = all.into_iter().fold(0.0, f64::max);
    let [of_s, of_x, of_weight, of_bias] = tolerances(p, reach, column);
    let mut answers = vec![Answer { values: ds.clone(), tolerance: of_s }];
    if norm.dropout() > 0.0 {
        let seed = [0, 1].map(|i| inputs[slot::SEED].at(i) as i64 as u64);
        let mut factors = vec![0f32; ds.len()];
        Dropout::new(norm.dropout()).factors(0, seed, &mut factors);
        let values = ds.iter().zip(&factors).map(|(ds, f)| ds * f64::from(*f)).collect();
        answers.push(Answer { values, tolerance: of_x });
    }
    if norm.weight {
        answers.push(Answer { values: dweight, tolerance: of_weight });
    }
    if norm.bias {
        answers.push(Answer { values: dbias, tolerance: of_bias });
    }
    answers
}

/// The gradient of a row of s, which becomes its norm.
fn slopes(p: &NormGradProblem, s: &mut [f64], g: &[f64], ds: &mut [f64]) -> Reach {
    let (n, layer) = (s.len() as f64, p.norm.kind == Kind::Layer);
    let mean = if layer { s.iter().sum::<f64>() / n } else { 0.0 };
    let square = s.iter().map(|s| (s - mean) * (s - mean)).sum::<f64>() / n;
    let inverse = 1.0 / (square + f64::from(p.norm.eps())).sqrt();
    let mut reach = Reach { inverse, ..Reach::default() };
    for (s, g) in s.iter_mut().zip(g) {
        reach.before = reach.before.max(s.abs() * inverse);
        *s = (*s - mean) * inverse;
        reach.normed = reach.normed.max(s.abs());
        reach.grad = reach.grad.max(g.abs());
    }
    let along = s.iter().zip(g).map(|(h, g)| h * g).sum::<f64>() / n;
    let level = if layer { g.iter().sum::<f64>() / n } else { 0.0 };
    for ((ds, h), g) in ds.iter_mut().zip(&*s).zip(g) {
        *ds = inverse * (g - level - h * along);
    }
    reach
}

/// Safety factor over the expected rounding error of a sum in any order, as for products.
const GROWTH: f64 = 6.0;

/// How far the gradients of s and x, of the weight and of the bias may be off; `column` is the largest sum of a
/// column's gradients without their signs.
pub(super) fn tolerances(p: &NormGradProblem, reach: Reach, column: f64) -> [Tolerance; 4] {
    let (own, wide) = (p.norm.dtype.roundoff(), DType::F32.roundoff());
    let steps = |terms: u64| GROWTH * wide * ((terms as f64).sqrt() / 8.0).clamp(1.0, 32.0);
    let (along, down) = (steps(p.norm.n), steps(p.norm.rows));
    let smallest = if p.norm.dtype == DType::F16 { 3.1e-8 } else { 3e-38 };
    // The norm is off by a share of itself, and of what the mean was taken away from.
    let layer = if p.norm.kind == Kind::Layer { reach.before } else { 0.0 };
    let normed = along * (reach.normed + layer);
    let row = reach.inverse * reach.grad * (2.0 * along * (1.0 + reach.normed) + 2.0 * normed);
    let relative = 2.0 * own + 8.0 * wide;
    let grown = f64::from(Dropout::new(p.norm.dropout()).grown);
    let ds = Tolerance { relative, floor: row + smallest };
    let dx = Tolerance { relative: relative + 2.0 * wide, floor: grown * row + smallest };
    let dweight = Tolerance { relative, floor: column * (down * reach.normed + normed) + smallest };
    [ds, dx, dweight, Tolerance { relative, floor: column * down + smallest }]
}

#[cfg(test)]
mod tests {
    use super::super::NormGrad;
    use super::*;
    use warplap_core::op::Op;

    fn worst(answer: &Answer, got: &[f64]) -> f64 {
        let share = |(got, right): (&f64, &f64)| (got - right).abs() / answer.tolerance.allowed(*right);
        got.iter().zip(&answer.values).map(share).fold(0.0, f64::max)
    }

    fn problem(text: &str) -> (NormGradProblem, Vec<Array>) {
        let p = NormGrad::parse(text).unwrap();
        let inputs = NormGrad::draw(&p, &mut fastrand::Rng::with_seed(4));
        (p, inputs)
    }

    #[test]
    fn gradients_are_the_slopes_of_what_follows_the_norm() {
        for text in ["rows=3,n=20,eps=0.1", "rows=3,n=20,kind=layer,bias=true", "rows=3,n=20,kind=layer,weight=false"] {
            let (p, inputs) = problem(text);
            let (n, s) = (20, inputs[slot::S].to_f64());
            let (grad, weight) = (inputs[slot::GRAD].to_f64(), inputs[slot::WEIGHT].to_f64());
            let after = |s: &[f64], weight: &[f64]| -> f64 {
                let row = |i: usize| {
                    let s = &s[i * n..(i + 1) * n];
                    let mean = if p.norm.kind == Kind::Layer { s.iter().sum::<f64>() / n as f64 } else { 0.0 };
                    let square = s.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / n as f64;
                    let inverse = 1.0 / (square + f64::from(p.norm.eps())).sqrt();
                    let w = |j: usize| if p.norm.weight { weight[j] } else { 1.0 };
                    (0..n).map(|j| (s[j] - mean) * inverse * w(j) * grad[i * n + j]).sum::<f64>()
                };
                (0..3).map(row).sum()
            };
            let moved = |of: &[f64], at: usize, by: f64| {
                of.iter().enumerate().map(|(i, x)| if i == at { x + by } else { *x }).collect::<Vec<f64>>()
            };
            let answers = answer(&p, &inputs);
            for at in [0, 7, 33, 59] {
                let slope = (after(&moved(&s, at, 1e-5), &weight) - after(&moved(&s, at, -1e-5), &weight)) / 2e-5;
                assert!((slope - answers[0].values[at]).abs() < 1e-7, "{text}: {slope}");
            }
            if p.norm.weight {
                let slope = (after(&s, &moved(&weight, 5, 1e-5)) - after(&s, &moved(&weight, 5, -1e-5))) / 2e-5;
                assert!((slope - answers[1].values[5]).abs() < 1e-7, "{text}: {slope}");
            }
        }
    }

    #[test]
    fn rounded_answers_pass_and_what_is_left_out_shows() {
        for dtype in ["f32", "f16", "bf16"] {
            for kind in ["rms", "layer"] {
                let text = format!("rows=40,n=200,kind={kind},dtype={dtype},bias=true,dropout=0.2,total=true,eps=0.1");
                let (p, inputs) = problem(&text);
                let right = answer(&p, &inputs);
                assert_eq!(right.len(), 4);
                for answer in &right {
                    let stored = Array::from_f64(p.norm.dtype, answer.values.iter().copied()).to_f64();
                    assert!(worst(answer, &stored) <= 1.0, "{text}: rounded");
                }
                let mut other = p;
                other.norm = p.norm.with_eps(0.11).unwrap();
                let mut others = vec![answer(&other, &inputs)];
                other.norm = p.norm;
                other.norm.kind = if kind == "rms" { Kind::Layer } else { Kind::Rms };
                others.push(answer(&other, &inputs));
                for other in others {
                    assert!([0, 1, 2].into_iter().all(|i| worst(&right[i], &other[i].values) > 1.0), "{text}");
                }
                let plain = answer(&NormGradProblem { total: false, ..p }, &inputs);
                assert!(worst(&right[0], &plain[0].values) > 1.0, "{text}: nothing from elsewhere");
            }
        }
    }
}
