//! The right answer of products by groups, in double precision.

use warplap_core::array::Array;
use warplap_core::dtype::DType;
use warplap_core::each_array;
use warplap_core::op::Answer;
use warplap_core::scalar::Scalar;
use warplap_core::tolerance::Tolerance;

use super::{GroupedProblem, ranges, slot};
use crate::gemm::Layout;
use crate::right::{Matrix, product_of};

/// The right answer to inputs as drawn: one product for each expert that has rows.
pub(super) fn answer(p: &GroupedProblem, inputs: &[Array]) -> Vec<Answer> {
    let (rows, n, k) = (p.rows as usize, p.n as usize, p.k as usize);
    let ends = inputs[slot::OFFSETS].indices().unwrap_or(&[]);
    let groups = ranges(ends, rows).unwrap_or_default();
    // Rows of nobody stay as they were: NaN says so.
    let (mut values, mut magnitude) = (vec![f64::NAN; rows * n], 0f64);
    for (expert, group) in groups.into_iter().enumerate().filter(|(_, group)| !group.is_empty()) {
        let x = part(&inputs[slot::X], group.start * k, group.len() * k);
        let w = part(&inputs[slot::W], expert * n * k, n * k);
        let (column, row) = if p.w == Layout::Row { (1, n) } else { (k, 1) };
        let (x, w) = (Matrix::tight(&x, group.len(), k), Matrix { numbers: &w, rows: k, columns: n, column, row });
        values[group.start * n..group.end * n].copy_from_slice(&product_of(x, w));
        magnitude = magnitude.max(x.largest_row_norm() * w.largest_column_norm());
    }
    vec![Answer { values, tolerance: tolerance(p, magnitude) }]
}

/// So many elements from one on.
fn part(array: &Array, first: usize, count: usize) -> Vec<f64> {
    each_array!(array, v => v[first..first + count].iter().map(|x| Scalar::to_f64(*x)).collect())
}

/// How far y may be off, from the largest product of the norms of a row of x and of a column of its expert's matrix.
pub(super) fn tolerance(p: &GroupedProblem, magnitude: f64) -> Tolerance {
    Tolerance::dot(p.dtype, DType::F32, p.k as usize, magnitude)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grouped::Grouped;
    use warplap_core::op::Op;

    #[test]
    fn the_right_answer_is_that_of_plain_loops() {
        for text in [
            "rows=9,n=5,k=7,experts=4,dtype=f32",
            "rows=20,n=3,k=6,experts=3,dtype=bf16,w=col,spread=even",
            "rows=20,n=3,k=6,experts=5,dtype=f16,w=col,spread=one",
            "rows=20,n=4,k=5,experts=3,dtype=f32,tail=6",
        ] {
            let p = Grouped::parse(text).unwrap();
            let inputs = Grouped::draw(&p, &mut fastrand::Rng::with_seed(4));
            let right = &Grouped::answer(&p, &inputs)[0].values;
            let (n, k) = (p.n as usize, p.k as usize);
            let ends = inputs[slot::OFFSETS].indices().unwrap();
            for (i, j) in (0..p.rows as usize).flat_map(|i| (0..n).map(move |j| (i, j))) {
                let Some(expert) = ends.iter().position(|end| i < *end as usize) else {
                    assert!(right[i * n + j].is_nan() && i >= (p.rows - p.tail) as usize, "{text}: {i}");
                    continue;
                };
                let w = |q: usize| if p.w == Layout::Row { q * n + j } else { j * k + q };
                let term = |q: usize| inputs[slot::X].at(i * k + q) * inputs[slot::W].at(expert * n * k + w(q));
                assert!((right[i * n + j] - (0..k).map(term).sum::<f64>()).abs() < 1e-12, "{text}: {i}, {j}");
            }
        }
    }

    #[test]
    fn rows_of_another_expert_are_a_wrong_answer() {
        let p = Grouped::parse("rows=64,n=24,k=48,experts=4,dtype=bf16,spread=even").unwrap();
        let mut inputs = Grouped::draw(&p, &mut fastrand::Rng::with_seed(4));
        let right = Grouped::answer(&p, &inputs).remove(0);
        // The first expert ends one row early.
        let Array::I32(ends) = &mut inputs[slot::OFFSETS] else { panic!("whole numbers") };
        ends[0] -= 1;
        let other = Grouped::answer(&p, &inputs).remove(0).values;
        let wrong =
            |(right_value, other): (&f64, &f64)| (right_value - other).abs() > right.tolerance.allowed(*right_value);
        assert!(right.values.iter().zip(&other).filter(|pair| wrong(*pair)).count() > 12);
    }
}
