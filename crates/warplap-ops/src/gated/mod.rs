//! Element by element: y = act(a), joined with b. Multiplied it is the middle of a gated layer (SwiGLU, GeGLU) where
//! its two products are there already; added, a residual sum; joined with nothing, the activation alone. a and b may be
//! the halves of one tensor: their rows lie as far apart as the problem says.
//!
//! Arithmetic is in f32 with one rounding at the end: act(a) is not rounded before it is joined.

#[cfg(feature = "cpu")]
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod known;
mod problem;

pub use problem::GatedProblem;

use rayon::prelude::*;
use warplap_core::array::Array;
use warplap_core::dtype::DType;
use warplap_core::op::{Answer, Op, drawn};
use warplap_core::slot::{Signature, Slot};
use warplap_core::tolerance::Tolerance;

use crate::gemm::Join;
use crate::host::{bend, in_parallel};

/// The operation act(a), joined with b.
#[derive(Clone, Copy, Debug)]
pub struct Gated;

/// The slots of a launch.
pub mod slot {
    /// What is activated, rows×n.
    pub const A: usize = 0;
    /// What that is joined with, rows×n; absent where it is joined with nothing.
    pub const B: usize = 1;
    /// The result, rows×n.
    pub const Y: usize = 2;
}

/// How many slots there are.
pub(crate) const SLOTS: usize = 3;

/// Bytes of one vector of a GPU.
const VECTOR: u64 = 16;

/// What a is stretched by when it is drawn, so that activations bend where they bend.
const STRETCH: f32 = 6.0;

/// Where one in sixteen is drawn to instead, in equal parts: to where exponentials, cubes of numbers and what is left of
/// a reciprocal leave f32. What a type cannot hold is its largest number then.
const FAR: [f32; 4] = [30.0, 1e4, 1e25, f32::INFINITY];

/// The largest number that is drawn of a type: of f32 a half of the largest, which may be off by a rounding and still is
/// a number.
const fn largest(dtype: DType) -> f32 {
    match dtype {
        DType::F16 => 65504.0,
        DType::Bf16 => 3.389_531_4e38,
        _ => 1.701_411_8e38,
    }
}

/// What a number in [-1, 1] is drawn to.
fn spread(a: f32, largest: f32) -> f32 {
    let beyond = 64.0 * (a.abs() - 0.9375);
    if beyond < 0.0 { a * STRETCH } else { FAR[(beyond as usize).min(3)].min(largest).copysign(a) }
}

/// The bytes that lines of so many elements lie on: those of a vector, where one divides a line.
pub(crate) fn align(elements: u64, dtype: DType) -> u64 {
    let bytes = elements.max(1) * dtype.bytes() as u64;
    VECTOR.min(1 << bytes.trailing_zeros())
}

impl Op for Gated {
    const NAME: &'static str = "gated";

    type Problem = GatedProblem;

    fn signature(p: &GatedProblem) -> Signature {
        let shape = [p.rows, p.n];
        // The second half of a tensor begins where the first ends.
        let own = align(p.n, p.dtype);
        let input = |name: &'static str, ld: u64| Slot::input(name, p.dtype, &shape).strided(&[ld, 1]).aligned(own);
        Signature(vec![
            input("a", p.lda),
            input("b", p.ldb).when(p.join != Join::None),
            Slot::output("y", p.dtype, &shape).aligned(own),
        ])
    }

    fn draw(p: &GatedProblem, rng: &mut fastrand::Rng) -> Vec<Array> {
        let mut inputs = drawn(&Self::signature(p), rng);
        let largest = largest(p.dtype);
        bend(&mut inputs[slot::A], p.lda as usize, |_, a| spread(a, largest));
        inputs
    }

    fn answer(p: &GatedProblem, inputs: &[Array]) -> Vec<Answer> {
        let (a, b) = (inputs[slot::A].wide(), inputs[slot::B].wide());
        let mut values = vec![0f64; p.len()];
        let each = |(row, to): (usize, &mut [f64])| {
            let a = &a[row * p.lda as usize..];
            to.iter_mut().zip(a).for_each(|(to, a)| *to = p.act.of(*a));
            if p.join == Join::None {
                return 0.0;
            }
            let b = &b[row * p.ldb as usize..];
            to.iter_mut().zip(b).for_each(|(to, b)| *to = p.join.of(*to, *b));
            b[..to.len()].iter().fold(0f64, |most, b| most.max(b.abs()))
        };
        let rows = || values.par_chunks_mut(p.n as usize).enumerate().map(each).reduce(|| 0.0, f64::max);
        let most = in_parallel(rows);
        vec![Answer { values, tolerance: tolerance(p, most) }]
    }
}

/// How far y may be off, given the largest magnitude of b: what an activation in f32 is off by, and one rounding.
fn tolerance(p: &GatedProblem, most: f64) -> Tolerance {
    let exact = Tolerance { relative: 2.0 * DType::F32.roundoff(), floor: 0.0 };
    let activated = if p.act.is_smooth() { exact.activated() } else { exact };
    match p.join {
        Join::None => activated.multiplied(p.dtype, 1.0),
        Join::Add => activated.added(most).multiplied(p.dtype, 1.0),
        Join::Mul => activated.multiplied(p.dtype, most),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::Activation;

    fn worst(answer: &Answer, got: &[f64]) -> f64 {
        let share = |(got, right): (&f64, &f64)| (got - right).abs() / answer.tolerance.allowed(*right);
        got.iter().zip(&answer.values).map(share).fold(0.0, f64::max)
    }

    /// By type, activation and join: problems, what was drawn for them, and the two arrays element by element.
    fn each(check: impl Fn(&GatedProblem, &[Array], Vec<(f64, f64)>)) {
        for dtype in ["f32", "f16", "bf16"] {
            for (act, join) in Activation::ALL.into_iter().flat_map(|act| Join::ALL.map(|join| (act, join))) {
                let ldb = if join == Join::None { "" } else { ",ldb=600" };
                let text = format!("rows=9,n=300,dtype={dtype},act={act},join={join},lda=301{ldb}");
                let p = Gated::parse(&text).unwrap();
                let inputs = Gated::draw(&p, &mut fastrand::Rng::with_seed(5));
                let at = |slot: usize, i: usize, ld: u64| inputs[slot].at(i / 300 * ld as usize + i % 300);
                let b = |i: usize| if join == Join::None { 0.0 } else { at(slot::B, i, 600) };
                let both = (0..p.len()).map(|i| (at(slot::A, i, 301), b(i))).collect();
                check(&p, &inputs, both);
            }
        }
    }

    #[test]
    fn rounded_answers_pass_and_another_activation_or_join_shows() {
        each(|p, inputs, both| {
            let right = Gated::answer(p, inputs).remove(0);
            let plain: Vec<f64> = both.iter().map(|(a, b)| p.join.of(p.act.of(*a), *b)).collect();
            assert_eq!(right.values, plain, "{p:?}");
            let stored = Array::from_f64(p.dtype, plain.iter().copied()).to_f64();
            assert!(worst(&right, &stored) <= 1.0, "{p:?}: rounded");
            for act in Activation::ALL.into_iter().filter(|act| *act != p.act) {
                let other = Gated::answer(&GatedProblem { act, ..*p }, inputs).remove(0).values;
                assert!(worst(&right, &other) > 1.0, "{p:?}: {act}");
            }
            for join in Join::ALL.into_iter().filter(|join| *join != p.join && p.join != Join::None) {
                let other: Vec<f64> = both.iter().map(|(a, b)| join.of(p.act.of(*a), *b)).collect();
                assert!(worst(&right, &other) > 1.0, "{p:?}: {join}");
            }
        });
    }

    #[test]
    fn what_is_rounded_before_it_is_joined_shows() {
        each(|p, inputs, both| {
            if p.dtype == DType::F32 || p.join == Join::None || !p.act.is_smooth() {
                return;
            }
            let right = Gated::answer(p, inputs).remove(0);
            let half = |a: f64| p.dtype.rounded(p.act.of(a));
            let twice: Vec<f64> = both.iter().map(|(a, b)| p.dtype.rounded(p.join.of(half(*a), *b))).collect();
            assert!(worst(&right, &twice) > 1.0, "{p:?}");
        });
    }
}
