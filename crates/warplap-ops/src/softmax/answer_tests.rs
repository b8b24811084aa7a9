//! The right answer is that of plain loops, and its tolerances tell wrong from right.

use warplap_core::op::Op;

use super::*;
use crate::softmax::Softmax;

fn plain(p: &SoftmaxProblem, inputs: &[Array], scale: f64, masked: bool) -> Vec<f64> {
    let n = p.n as usize;
    let mut y = Vec::new();
    for row in 0..p.rows as usize {
        let added = |j: usize| match masked {
            true => inputs[slot::MASK].at(p.mask_row(row as u64) as usize * n + j),
            false => 0.0,
        };
        let weights: Vec<f64> = (0..n).map(|j| (inputs[slot::X].at(row * n + j) * scale + added(j)).exp()).collect();
        let sum: f64 = weights.iter().sum();
        y.extend(weights.iter().map(|w| w / sum));
    }
    y
}

fn share(answer: &Answer, got: &[f64]) -> f64 {
    let share = |(got, right): (&f64, &f64)| (got - right).abs() / answer.tolerance.allowed(*right);
    got.iter().zip(&answer.values).map(share).fold(0.0, f64::max)
}

#[test]
fn the_right_answer_is_that_of_plain_loops_and_what_is_left_out_shows() {
    for dtype in ["f32", "f16", "bf16"] {
        for rest in ["", ",scale=0.125", ",scale=-2", ",mask=1", ",mask=12,scale=0.3", ",mask=3,each=4"] {
            let text = format!("rows=12,n=200,dtype={dtype}{rest}");
            let p = Softmax::parse(&text).unwrap();
            let inputs = Softmax::draw(&p, &mut fastrand::Rng::with_seed(4));
            let answer = &Softmax::answer(&p, &inputs)[0];
            let scale = f64::from(p.scale());
            let y = plain(&p, &inputs, scale, p.mask > 0);
            assert!(y.iter().zip(&answer.values).all(|(a, b)| (a - b).abs() < 1e-12), "{text}");
            let stored = Array::from_f64(p.dtype, y.iter().copied()).to_f64();
            assert!(share(answer, &stored) <= 1.0, "{text}: y rounded");
            assert!(share(answer, &plain(&p, &inputs, scale * 1.01, p.mask > 0)) > 1.0, "{text}: another factor");
            if p.mask > 0 {
                assert!(share(answer, &plain(&p, &inputs, scale, false)) > 1.0, "{text}: no mask");
                assert!(inputs[slot::MASK].to_f64().contains(&f64::NEG_INFINITY), "{text}: nothing is hidden");
            }
        }
    }
}
