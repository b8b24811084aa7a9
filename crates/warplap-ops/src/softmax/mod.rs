//! Softmax of rows: y = exp(s) / Σ exp(s) with s = scale · x + mask. The mask may be shared by rows, and is then never
//! written out; it may hold -inf. A row of which nothing is left is not a number, as torch has it.

#[cfg(feature = "cpu")]
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod known;
mod problem;

pub use problem::SoftmaxProblem;

use rayon::prelude::*;
use warplap_core::array::Array;
use warplap_core::dtype::DType;
use warplap_core::op::{Answer, Op, drawn};
use warplap_core::slot::{Signature, Slot};
use warplap_core::tolerance::Tolerance;

use crate::host::{bend, in_parallel};

/// The operation softmax(scale · x + mask).
#[derive(Clone, Copy, Debug)]
pub struct Softmax;

/// The slots of a softmax.
pub mod slot {
    /// x, rows×n.
    pub const X: usize = 0;
    /// What is added to the scaled rows, mask×n.
    pub const MASK: usize = 1;
    /// The softmax, rows×n.
    pub const Y: usize = 2;
}

/// How many slots there are.
pub(crate) const SLOTS: usize = 3;

/// Bytes that every buffer's address is a multiple of: one vector of a GPU.
pub(crate) const ALIGN: u64 = 16;

/// What x is drawn within once it is scaled, on both sides of zero.
const SPREAD: f32 = 4.0;

impl Op for Softmax {
    const NAME: &'static str = "softmax";

    type Problem = SoftmaxProblem;

    fn signature(p: &SoftmaxProblem) -> Signature {
        let rows = [p.rows, p.n];
        Signature(vec![
            Slot::input("x", p.dtype, &rows).aligned(ALIGN),
            Slot::input("mask", p.dtype, &[p.mask, p.n]).aligned(ALIGN).when(p.mask > 0),
            Slot::output("y", p.dtype, &rows).aligned(ALIGN),
        ])
    }

    fn draw(p: &SoftmaxProblem, rng: &mut fastrand::Rng) -> Vec<Array> {
        let mut inputs = drawn(&Self::signature(p), rng);
        // A power of two keeps what was drawn exact; half types end where they end.
        let by = (SPREAD / p.scale().abs().clamp(1e-3, 1e3)).log2().round().exp2();
        bend(&mut inputs[slot::X], p.n as usize, |_, x| x * by);
        // A fifth of the mask hides; somebody is left in every row.
        let hidden = |x: f32| if x > 0.6 { f32::NEG_INFINITY } else { x };
        bend(&mut inputs[slot::MASK], p.n as usize, |_, x| hidden(x));
        show_first(&mut inputs[slot::MASK], p.n as usize);
        inputs
    }

    fn answer(p: &SoftmaxProblem, inputs: &[Array]) -> Vec<Answer> {
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
}

/// Makes the first element of every row of a mask one that hides nothing.
fn show_first(mask: &mut Array, n: usize) {
    fn each<T>(mask: &mut [T], n: usize, zero: impl Fn() -> T) {
        mask.chunks_mut(n.max(1)).for_each(|row| row[0] = zero());
    }
    match mask {
        Array::F32(v) => each(v, n, || 0.0),
        Array::F16(v) => each(v, n, || half::f16::ZERO),
        Array::Bf16(v) => each(v, n, || half::bf16::ZERO),
        _ => {}
    }
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
fn tolerance(p: &SoftmaxProblem, reach: f64) -> Tolerance {
    let (own, wide) = (p.dtype.roundoff(), DType::F32.roundoff());
    let sums = GROWTH * wide * ((p.n as f64).sqrt() / 8.0).clamp(1.0, 32.0);
    // Rounding near zero is absolute: half the smallest f16, and f32 below its normal numbers.
    let smallest = if p.dtype == DType::F16 { 3.1e-8 } else { 3e-38 };
    Tolerance { relative: 2.0 * own + sums + 3.0 * wide * reach, floor: smallest }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
