//! Softmax backward: dx = scale · y ∘ (dy − Σ dy ∘ y) from y and the gradient of y, row by row.

#[cfg(feature = "cpu")]
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod known;
mod problem;

pub use problem::SoftmaxGradProblem;

use rayon::prelude::*;
use warplap_core::array::Array;
use warplap_core::dtype::DType;
use warplap_core::op::{Answer, Op, drawn};
use warplap_core::slot::{Signature, Slot};
use warplap_core::tolerance::Tolerance;

use crate::host::{bend, in_parallel};
use crate::softmax::{ALIGN, GROWTH};

/// The operation of softmax's gradient.
#[derive(Clone, Copy, Debug)]
pub struct SoftmaxGrad;

/// The slots of a launch.
pub mod slot {
    /// The softmax, rows×n.
    pub const Y: usize = 0;
    /// The gradient of the softmax, rows×n.
    pub const GRAD: usize = 1;
    /// The gradient of what softmax was taken of, rows×n.
    pub const DX: usize = 2;
}

/// How many slots there are.
pub(crate) const SLOTS: usize = 3;

/// What gradients are moved by when they are drawn, so that a sum which is not taken away shows.
const SHIFT: f32 = 0.5;

impl Op for SoftmaxGrad {
    const NAME: &'static str = "softmax_grad";

    type Problem = SoftmaxGradProblem;

    fn signature(SoftmaxGradProblem(p): &SoftmaxGradProblem) -> Signature {
        let rows = [p.rows, p.n];
        Signature(vec![
            Slot::input("y", p.dtype, &rows).aligned(ALIGN),
            Slot::input("grad", p.dtype, &rows).aligned(ALIGN),
            Slot::output("dx", p.dtype, &rows).aligned(ALIGN),
        ])
    }

    fn draw(p: &SoftmaxGradProblem, rng: &mut fastrand::Rng) -> Vec<Array> {
        let (mut inputs, n) = (drawn(&Self::signature(p), rng), p.0.n as usize);
        // As a softmax has it: nothing negative, and a sum of about one.
        let by = (2.0 / n as f32).log2().round().exp2();
        bend(&mut inputs[slot::Y], n, |_, y| y.abs() * by);
        bend(&mut inputs[slot::GRAD], n, |_, g| g + SHIFT);
        inputs
    }

    fn answer(p: &SoftmaxGradProblem, inputs: &[Array]) -> Vec<Answer> {
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
}

/// How far rows reach, which is what errors grow with.
#[derive(Clone, Copy, Debug, Default)]
struct Reach {
    /// The largest element of y.
    y: f64,
    /// The largest element of its gradient.
    grad: f64,
    /// The largest sum of magnitudes of their products in a row.
    sum: f64,
}

impl Reach {
    /// The larger of both elements; the sum is this one's.
    fn or(self, other: Reach) -> Reach {
        Reach { y: self.y.max(other.y), grad: self.grad.max(other.grad), sum: self.sum }
    }
}

/// How far dx may be off: its own rounding, and what the sum and the difference lose in f32.
fn tolerance(SoftmaxGradProblem(p): &SoftmaxGradProblem, reach: Reach) -> Tolerance {
    let (own, wide) = (p.dtype.roundoff(), DType::F32.roundoff());
    let sums = GROWTH * wide * ((p.n as f64).sqrt() / 8.0).clamp(1.0, 32.0) * reach.sum;
    let lost = sums + 2.0 * wide * (reach.grad + reach.sum);
    let smallest = if p.dtype == DType::F16 { 3.1e-8 } else { 3e-38 };
    Tolerance { relative: 2.0 * own + 4.0 * wide, floor: f64::from(p.scale()).abs() * reach.y * lost + smallest }
}

#[cfg(test)]
mod tests {
    use super::*;

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
