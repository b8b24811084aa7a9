//! The right answer to a product of 8-bit numbers, in double precision.

use rayon::prelude::*;
use warplap_core::array::Array;
use warplap_core::op::Answer;
use warplap_core::scalar::{F8E4m3, Scalar};
use warplap_core::tolerance::Tolerance;

use super::{BLOCK, QgemmProblem, Scale, slot};
use crate::host::in_parallel;
use crate::right;

/// The right answer to inputs as drawn.
pub(super) fn answer(p: &QgemmProblem, inputs: &[Array]) -> Vec<Answer> {
    let (m, n, k) = (p.m as usize, p.n as usize, p.k as usize);
    let (sa, sb) = (inputs[slot::SCALE_A].to_f64(), inputs[slot::SCALE_B].to_f64());
    let (block, pitch) = (BLOCK as usize, p.b_scale_pitch() as usize);
    let a = standing_for(&inputs[slot::A], k, |row, q| match p.scale {
        Scale::None => 1.0,
        Scale::Tensor => sa[0],
        Scale::Row => sa[row],
        Scale::Block => sa[q / block * m + row],
    });
    let b = standing_for(&inputs[slot::B], k, |column, q| match p.scale {
        Scale::None => 1.0,
        Scale::Tensor => sb[0],
        Scale::Row => sb[column],
        Scale::Block => sb[column / block * pitch + q / block],
    });
    let magnitude = right::largest_row_norm(m, k, &a) * right::largest_row_norm(n, k, &b);
    let mut turned = vec![0f64; k * n];
    let turn = |(q, row): (usize, &mut [f64])| row.iter_mut().enumerate().for_each(|(j, to)| *to = b[j * k + q]);
    in_parallel(|| turned.par_chunks_mut(n.max(1)).enumerate().for_each(turn));
    vec![Answer { values: right::product(m, n, k, &a, &turned), tolerance: tolerance(p, magnitude) }]
}

/// How far a product may be off, given the largest product of the norm of a row of A and that of a column of B.
pub(super) fn tolerance(p: &QgemmProblem, magnitude: f64) -> Tolerance {
    if p.is_int() {
        return Tolerance { relative: 0.0, floor: 0.0 };
    }
    let run = if p.fast { p.k } else { p.k.min(BLOCK) };
    Tolerance::narrow_dot(p.out, p.k as usize, run as usize, magnitude)
}

/// The numbers a matrix stands for, line by line along k; `factor` is the one of an element's line and place in it.
fn standing_for(codes: &Array, k: usize, factor: impl Fn(usize, usize) -> f64 + Sync) -> Vec<f64> {
    let mut out = vec![0f64; codes.len()];
    let value: Box<dyn Fn(usize) -> f64 + Sync> = match codes {
        Array::F8E4m3(codes) => {
            let table: Vec<f64> = (0..=255).map(|code| F8E4m3(code).to_f64()).collect();
            Box::new(move |i| table[usize::from(codes[i].0)])
        }
        codes => Box::new(|i| codes.at(i)),
    };
    let fill = |(line, to): (usize, &mut [f64])| {
        to.iter_mut().enumerate().for_each(|(q, to)| *to = value(line * k + q) * factor(line, q));
    };
    in_parallel(|| out.par_chunks_mut(k.max(1)).enumerate().for_each(fill));
    out
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
