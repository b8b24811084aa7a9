//! The right weights and indices of the router's softmax, in double precision.

use rayon::prelude::*;
use warplap_core::array::Array;
use warplap_core::dtype::DType;
use warplap_core::op::Answer;
use warplap_core::tolerance::Tolerance;

use super::{TopkSoftmaxProblem, order, slot};
use crate::host::in_parallel;
use crate::softmax::GROWTH;

/// Indices are compared by what x is, which nobody rounds: there is one right answer.
pub(super) const EXACT: Tolerance = Tolerance { relative: 0.0, floor: 0.0 };

/// The right answer to inputs as drawn.
pub(super) fn answer(p: &TopkSoftmaxProblem, inputs: &[Array]) -> Vec<Answer> {
    let (n, k) = (p.n as usize, p.k as usize);
    let x = inputs[slot::X].wide();
    let (mut weights, mut indices) = (vec![0f64; p.chosen()], vec![0f64; p.chosen()]);
    let finish = |((x, weights), indices): ((&[f64], &mut [f64]), &mut [f64])| {
        let places = order::first(x, k);
        let most = x[places[0]];
        for ((weight, index), place) in weights.iter_mut().zip(indices).zip(&places) {
            *weight = (x[*place] - most).exp();
            *index = *place as f64;
        }
        let sum: f64 = match p.renormalize {
            true => weights.iter().sum(),
            false => x.iter().map(|x| (x - most).exp()).sum(),
        };
        weights.iter_mut().for_each(|weight| *weight /= sum);
        reach(x, most)
    };
    let reach = in_parallel(|| {
        let rows = x.par_chunks(n).zip(weights.par_chunks_mut(k)).zip(indices.par_chunks_mut(k));
        rows.map(finish).reduce(|| 0.0, f64::max)
    });
    vec![Answer { values: weights, tolerance: tolerance(p, reach) }, Answer { values: indices, tolerance: EXACT }]
}

/// How far exponents reach: the largest sum of what they are computed of, where anything is left of the result.
fn reach(x: &[f64], most: f64) -> f64 {
    let far = |x: &&f64| (**x - most).exp() > 1e-30;
    x.iter().filter(far).fold(0.0, |reach, x| x.abs().max(reach)) + most.abs()
}

/// How far weights may be off: a sum of exponentials and a quotient in f32, and the rounding of exponents.
pub(super) fn tolerance(p: &TopkSoftmaxProblem, reach: f64) -> Tolerance {
    let (wide, terms) = (DType::F32.roundoff(), if p.renormalize { p.k } else { p.n });
    let sums = GROWTH * wide * ((terms as f64).sqrt() / 8.0).max(1.0);
    // Near zero f32 is absolute.
    Tolerance { relative: 2.0 * wide + sums + 3.0 * wide * reach, floor: 3e-38 }
}

#[cfg(test)]
mod tests {
    use super::super::TopkSoftmax;
    use super::*;
    use warplap_core::op::Op;

    fn of(text: &str, x: Vec<f32>) -> (Vec<f64>, Vec<f64>) {
        let p = TopkSoftmax::parse(text).unwrap();
        let mut answers = answer(&p, &[Array::F32(x), Array::none(), Array::none()]).into_iter().map(|a| a.values);
        (answers.next().unwrap(), answers.next().unwrap())
    }

    #[test]
    fn weights_are_shares_of_the_row_or_of_who_is_chosen() {
        let x = vec![1.0, 4f32.ln(), 0.0, 2f32.ln(), 0.0, f32::NEG_INFINITY, f32::NEG_INFINITY, 0.0];
        let (weights, indices) = of("rows=2,n=4,k=2", x.clone());
        assert_eq!(indices, [1.0, 0.0, 0.0, 3.0]);
        let row = 4.0 + 1f64.exp() + 1.0 + 2.0;
        for (got, right) in weights.iter().zip([4.0 / row, 1f64.exp() / row, 0.5, 0.5]) {
            assert!((got - right).abs() < 1e-7, "{weights:?}");
        }
        let (weights, _) = of("rows=2,n=4,k=3,renormalize=true", x);
        assert!((weights[..3].iter().sum::<f64>() - 1.0).abs() < 1e-12 && weights[5] == 0.0, "{weights:?}");
    }

    #[test]
    fn one_element_that_is_left_out_of_a_sum_shows() {
        let p = TopkSoftmax::parse("rows=1,n=4096,k=8").unwrap();
        let allowed = tolerance(&p, 8.0);
        assert!(allowed.relative < 1.0 / 4096.0 && allowed.relative > 16.0 * DType::F32.roundoff());
    }
}
