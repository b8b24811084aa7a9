//! The right answer to an activation, in double precision.

use rayon::prelude::*;
use warplap_core::array::Array;
use warplap_core::dtype::DType;
use warplap_core::op::Answer;
use warplap_core::tolerance::Tolerance;

use super::{GatedProblem, slot};
use crate::gemm::Join;
use crate::host::in_parallel;

/// The right answer to inputs as drawn.
pub(super) fn answer(p: &GatedProblem, inputs: &[Array]) -> Vec<Answer> {
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

/// How far y may be off, given the largest magnitude of b: what an activation in f32 is off by, and one rounding.
pub(super) fn tolerance(p: &GatedProblem, most: f64) -> Tolerance {
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
    use warplap_core::op::Op;

    use super::*;
    use crate::gated::Gated;
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
