//! The right gradient of a softmax, in double precision.

use rayon::prelude::*;
use warplap_core::array::Array;
use warplap_core::dtype::DType;
use warplap_core::op::Answer;
use warplap_core::tolerance::Tolerance;

use super::{SoftmaxGradProblem, slot};
use crate::host::in_parallel;
use crate::softmax::GROWTH;

/// The right answer to inputs as drawn.
pub(super) fn answer(p: &SoftmaxGradProblem, inputs: &[Array]) -> Vec<Answer> {
    let (n, scale) = (p.0.n as usize, f64::from(p.0.scale()));
    let (y, mut values) = (inputs[slot::Y].to_f64(), inputs[slot::GRAD].to_f64());
    let finish = |(row, g): (usize, &mut [f64])| {
        let y = &y[row * n..][..n];
        let (mut delta, mut reach) = (0f64, Reach::default());
        for (y, g) in y.iter().zip(&*g) {
            delta += y * g;
            reach = reach.or(Reach { y: y.abs(), grad: g.abs(), sum: 0.0 });
            reach.sum += (y * g).abs();
        }
        y.iter().zip(g).for_each(|(y, g)| *g = scale * y * (*g - delta));
        reach
    };
    let finished = |values: &mut [f64]| {
        values
            .par_chunks_mut(n)
            .enumerate()
            .map(finish)
            .reduce(Reach::default, |a, b| Reach { sum: a.sum.max(b.sum), ..a.or(b) })
    };
    let reach = in_parallel(|| finished(&mut values));
    vec![Answer { values, tolerance: tolerance(p, reach) }]
}

/// How far rows reach, which is what errors grow with.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reach {
    /// The largest element of y.
    pub(super) y: f64,
    /// The largest element of its gradient.
    pub(super) grad: f64,
    /// The largest sum of magnitudes of their products in a row.
    pub(super) sum: f64,
}

impl Reach {
    /// The larger of both elements; the sum is this one's.
    fn or(self, other: Reach) -> Reach {
        Reach { y: self.y.max(other.y), grad: self.grad.max(other.grad), sum: self.sum }
    }
}

/// How far dx may be off: its own rounding, and what the sum and the difference lose in f32.
pub(super) fn tolerance(SoftmaxGradProblem(p): &SoftmaxGradProblem, reach: Reach) -> Tolerance {
    let (own, wide) = (p.dtype.roundoff(), DType::F32.roundoff());
    let sums = GROWTH * wide * ((p.n as f64).sqrt() / 8.0).clamp(1.0, 32.0) * reach.sum;
    let lost = sums + 2.0 * wide * (reach.grad + reach.sum);
    let smallest = if p.dtype == DType::F16 { 3.1e-8 } else { 3e-38 };
    Tolerance { relative: 2.0 * own + 4.0 * wide, floor: f64::from(p.scale()).abs() * reach.y * lost + smallest }
}

#[cfg(test)]
mod tests {
    use warplap_core::op::Op;

    use super::*;
    use crate::softmax_grad::SoftmaxGrad;

    #[test]
    fn the_right_answer_is_that_of_plain_loops_and_what_is_left_out_shows() {
        for text in ["rows=3,n=200", "rows=3,n=200,dtype=f16,scale=-0.5", "rows=3,n=4096,dtype=bf16,scale=2"] {
            let p = SoftmaxGrad::parse(text).unwrap();
            let inputs = SoftmaxGrad::draw(&p, &mut fastrand::Rng::with_seed(4));
            let (answer, n) = (&SoftmaxGrad::answer(&p, &inputs)[0], p.0.n as usize);
            let plain = |scale: f64, part: f64| {
                let (y, g) = (inputs[slot::Y].to_f64(), inputs[slot::GRAD].to_f64());
                let delta = |row: usize| (row * n..(row + 1) * n).map(|i| y[i] * g[i]).sum::<f64>() * part;
                (0..p.0.len()).map(|i| scale * y[i] * (g[i] - delta(i / n))).collect::<Vec<f64>>()
            };
            let share = |got: Vec<f64>| {
                let share = |(got, right): (f64, &f64)| (got - right).abs() / answer.tolerance.allowed(*right);
                got.into_iter().zip(&answer.values).map(share).fold(0.0, f64::max)
            };
            let (scale, right) = (f64::from(p.0.scale()), plain(f64::from(p.0.scale()), 1.0));
            assert!(right.iter().zip(&answer.values).all(|(a, b)| (a - b).abs() < 1e-12), "{text}");
            assert!(share(Array::from_f64(p.0.dtype, right).to_f64()) <= 1.0, "{text}: rounded");
            assert!(share(plain(scale * 1.02, 1.0)) > 1.0, "{text}: another factor");
            assert!(share(plain(scale, 0.99)) > 1.0, "{text}: a hundredth of the sum left out");
        }
    }
}
