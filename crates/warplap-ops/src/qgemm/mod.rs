//! Products of 8-bit numbers: f8e4m3 with factors that make them the numbers they stand for, summed in f32, and signed
//! bytes with exact sums in i32.

#[cfg(feature = "cpu")]
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod known;
mod problem;

pub use problem::{BLOCK, QgemmProblem, Scale};

use rayon::prelude::*;
use warplap_core::array::Array;
use warplap_core::dtype::DType;
use warplap_core::op::{Answer, Op, drawn};
use warplap_core::scalar::{F8E4m3, Scalar};
use warplap_core::slot::{Signature, Slot};
use warplap_core::tolerance::Tolerance;

use crate::host::in_parallel;
use crate::right;

/// The operation C = (scaled A)·(scaled B) of 8-bit numbers.
#[derive(Clone, Copy, Debug)]
pub struct Qgemm;

/// The slots of a product of 8-bit numbers.
pub mod slot {
    /// A, m×k, row-major.
    pub const A: usize = 0;
    /// B, k×n, column-major.
    pub const B: usize = 1;
    /// The factors of A.
    pub const SCALE_A: usize = 2;
    /// The factors of B.
    pub const SCALE_B: usize = 3;
    /// C, m×n, row-major.
    pub const C: usize = 4;
}

/// How many slots there are.
pub const SLOTS: usize = 5;

/// Bytes that divide the addresses of the matrices.
const ALIGN: u64 = 16;

/// How far a product may be off, given the largest product of the norm of a row of A and that of a column of B.
fn tolerance(p: &QgemmProblem, magnitude: f64) -> Tolerance {
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

impl Op for Qgemm {
    const NAME: &'static str = "qgemm";

    type Problem = QgemmProblem;

    fn signature(p: &QgemmProblem) -> Signature {
        let scaled = p.scale != Scale::None;
        let factors = |name: &'static str, (shape, strides): (Vec<u64>, Vec<u64>)| {
            Slot::input(name, DType::F32, &shape).strided(&strides).when(scaled)
        };
        Signature(vec![
            Slot::input("a", p.dtype, &[p.m, p.k]).aligned(ALIGN),
            Slot::input("b", p.dtype, &[p.k, p.n]).strided(&[1, p.k]).aligned(ALIGN),
            factors("scale_a", p.a_scales()).aligned(if p.scale == Scale::Block { ALIGN } else { 4 }),
            factors("scale_b", p.b_scales()).aligned(if p.scale == Scale::Block { ALIGN } else { 4 }),
            Slot::output("c", p.out, &[p.m, p.n]).aligned(ALIGN),
        ])
    }

    fn draw(p: &QgemmProblem, rng: &mut fastrand::Rng) -> Vec<Array> {
        let mut inputs = drawn(&Qgemm::signature(p), rng);
        for slot in [slot::SCALE_A, slot::SCALE_B] {
            // Near each other, so that the bound of the largest row is tight for every one; never 1.
            if let Array::F32(factors) = &mut inputs[slot] {
                factors.iter_mut().for_each(|f| *f = 0.3 + 0.1 * *f);
            }
        }
        inputs
    }

    fn answer(p: &QgemmProblem, inputs: &[Array]) -> Vec<Answer> {
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
}

#[cfg(test)]
mod answer_tests;
