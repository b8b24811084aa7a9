//! The right answer of a turn, in double precision on the host, and how far kernels may be from it.

use rayon::prelude::*;
use warplap_core::array::Array;
use warplap_core::dtype::DType;
use warplap_core::op::Answer;
use warplap_core::tolerance::Tolerance;

use super::{Positions, RopeProblem, slot};
use crate::host::in_parallel;

/// What all heads are turned by, in double precision.
struct Rotation {
    cos: Vec<f64>,
    sin: Vec<f64>,
    positions: Vec<f64>,
    bias: Vec<f64>,
}

/// Heads of one tensor: how many come before them, how many they are, and elements from a row to the next, in and out.
struct Part {
    first: u64,
    heads: u64,
    ld: u64,
    out: u64,
}

/// x, and k where the problem has it.
fn parts(p: &RopeProblem) -> impl Iterator<Item = Part> {
    let out = |heads: u64, ld: u64| if p.in_place { ld } else { heads * p.d };
    let all = [
        Part { first: 0, heads: p.h, ld: p.ld, out: out(p.h, p.ld) },
        Part { first: p.h, heads: p.hk, ld: p.ldk, out: out(p.hk, p.ldk) },
    ];
    all.into_iter().filter(|part| part.heads > 0)
}

/// One answer for each slot that is written.
pub(super) fn answer(p: &RopeProblem, inputs: &[Array]) -> Vec<Answer> {
    let [cos, sin, positions, bias] =
        [slot::COS, slot::SIN, slot::POSITIONS, slot::BIAS].map(|slot| inputs[slot].to_f64());
    let rotation = Rotation { cos, sin, positions, bias };
    let part_results: Vec<(Vec<f64>, f64)> = parts(p)
        .zip([slot::X, slot::K])
        .map(|(part, slot)| turned(p, &rotation, &part, &inputs[slot].to_f64()))
        .collect();
    let reach = part_results.iter().fold(0.0, |most: f64, (_, reach)| most.max(*reach));
    part_results.into_iter().map(|(values, _)| Answer { values, tolerance: tolerance(p, reach) }).collect()
}

/// The heads of one tensor, and the largest sum of magnitudes that an element is made of.
fn turned(p: &RopeProblem, rotation: &Rotation, part: &Part, x: &[f64]) -> (Vec<f64>, f64) {
    let (d, width) = (p.d as usize, (part.heads * p.d) as usize);
    let mut values = vec![f64::NAN; (p.rows as usize - 1) * part.out as usize + width];
    let each = |(row, to): (usize, &mut [f64])| {
        let from = &x[row * part.ld as usize..][..width];
        let mut reach = 0f64;
        for (i, (from, to)) in from.chunks(d).zip(to[..width].chunks_mut(d)).enumerate() {
            reach = reach.max(head(p, rotation, row, part.first as usize + i, from, to));
        }
        reach
    };
    let reach = in_parallel(|| values.par_chunks_mut(part.out as usize).enumerate().map(each).reduce(|| 0.0, f64::max));
    (values, reach)
}

/// One head.
fn head(p: &RopeProblem, rotation: &Rotation, row: usize, head: usize, from: &[f64], to: &mut [f64]) -> f64 {
    let bias = |j: usize| if p.bias { rotation.bias[head * p.d as usize + j] } else { 0.0 };
    let turns = (head as u64) < p.turned();
    let position = match p.positions {
        Positions::Rows => row as u64 % p.n,
        _ => rotation.positions[row] as u64,
    };
    let line = (position * p.ldt) as usize;
    let mut reach = 0f64;
    for (j, to) in to.iter_mut().enumerate() {
        let own = (from[j] + bias(j), from[j].abs() + bias(j).abs());
        if !turns || j as u64 >= p.rot {
            (*to, reach) = (own.0, reach.max(own.1));
            continue;
        }
        let (other, (column, sign)) = (p.other(j), p.sine(j));
        let (cos, sin) = (rotation.cos[line + p.column(j)], f64::from(sign) * rotation.sin[line + column]);
        *to = own.0 * cos + (from[other] + bias(other)) * sin;
        reach = reach.max(own.1 * cos.abs() + (from[other].abs() + bias(other).abs()) * sin.abs());
    }
    reach
}

/// How far an element may be off: its own rounding, and in f32 that of the bias, of two products and of their sum;
/// `reach` is the largest sum of magnitudes that an element is made of.
pub(super) fn tolerance(p: &RopeProblem, reach: f64) -> Tolerance {
    // Rounding near zero is absolute: half the smallest f16.
    let smallest = if p.dtype == DType::F16 { 2.99e-8 } else { 0.0 };
    Tolerance { relative: 1.001 * p.dtype.roundoff(), floor: 3.0 * DType::F32.roundoff() * reach + smallest }
}

#[cfg(test)]
mod tests {
    use super::super::Rope;
    use super::*;
    use warplap_core::op::Op;

    fn worst(answer: &Answer, got: &[f64]) -> f64 {
        let share = |(got, right): (&f64, &f64)| (got - right).abs() / answer.tolerance.allowed(*right);
        got.iter().zip(&answer.values).filter(|(_, right)| !right.is_nan()).map(share).fold(0.0, f64::max)
    }

    fn drawn(text: &str) -> (RopeProblem, Vec<Array>) {
        let p = Rope::parse(text).unwrap();
        (p, Rope::draw(&p, &mut fastrand::Rng::with_seed(5)))
    }

    #[test]
    fn pairs_are_turned_as_complex_numbers_are() {
        // i times e^(iπ/2) is -1, and 1 times it is i; the last element is kept.
        for (pairs, x, y) in [
            ("halves", [0.0, 0.0, 1.0, 1.0, 7.0], [-1.0, -1.0, 0.0, 0.0, 7.0]),
            ("interleaved", [0.0, 1.0, 1.0, 0.0, 7.0], [-1.0, 0.0, 0.0, 1.0, 7.0]),
        ] {
            let p = Rope::parse(&format!("rows=1,h=1,d=5,rot=4,pairs={pairs}")).unwrap();
            let mut inputs = vec![Array::none(); super::super::SLOTS];
            inputs[slot::X] = Array::F32(x.to_vec());
            (inputs[slot::COS], inputs[slot::SIN]) = (Array::F32(vec![0.0; 2]), Array::F32(vec![1.0; 2]));
            assert_eq!(answer(&p, &inputs)[0].values, y, "{pairs}");
        }
    }

    #[test]
    fn a_gradient_is_the_slope_of_the_turn() {
        for rest in ["", ",pairs=interleaved", ",wide=true,rot=4", ",wide=true,pairs=interleaved,hk=2,plain=1"] {
            let (p, inputs) = drawn(&format!("rows=2,h=2,d=6{rest}"));
            let (_, along) = drawn(&format!("rows=2,h=2,d=6{rest},positions=i32"));
            let weighed = |moved: &[Array]| -> f64 {
                let of = |(a, g): (&Answer, usize)| -> f64 {
                    a.values.iter().zip(along[g].to_f64()).map(|(y, g)| y * g).sum()
                };
                answer(&p, moved).iter().zip([slot::X, slot::K]).map(of).sum()
            };
            let mut gradient = inputs.clone();
            gradient[slot::X] = along[slot::X].clone();
            gradient[slot::K] = along[slot::K].clone();
            let back = answer(&RopeProblem { back: true, ..p }, &gradient);
            for (place, slope) in [slot::X, slot::K].into_iter().zip(&back) {
                for at in 0..slope.values.len() {
                    let moved = |by: f64| {
                        let mut moved = inputs.clone();
                        let mut x = inputs[place].to_f64();
                        x[at] += by;
                        moved[place] = Array::F64(x);
                        weighed(&moved)
                    };
                    let difference = (moved(0.5) - moved(-0.5)) / 1.0;
                    assert!(
                        (difference - slope.values[at]).abs() < 1e-9,
                        "{rest}: {difference} and {}",
                        slope.values[at]
                    );
                }
            }
        }
    }

    #[test]
    fn rounded_answers_pass_and_what_is_left_out_shows() {
        for dtype in ["f32", "f16", "bf16"] {
            for rest in ["", ",hk=1,pairs=interleaved,plain=1", ",rot=4,inplace=true,ld=30", ",wide=true,positions=i64"]
            {
                let text = format!("rows=9,h=3,d=8,n=40,dtype={dtype},bias=true{rest}");
                let (p, inputs) = drawn(&text);
                let right = answer(&p, &inputs);
                for answer in &right {
                    let stored = Array::from_f64(p.dtype, answer.values.iter().copied()).to_f64();
                    assert!(worst(answer, &stored) <= 1.0, "{text}: rounded");
                }
                let others = [
                    ("bias", RopeProblem { bias: false, ..p }),
                    ("way", RopeProblem { back: true, ..p }),
                    ("position", RopeProblem { n: 1, positions: Positions::Rows, ..p }),
                    ("part", RopeProblem { rot: 2, wide: false, ..p }),
                ];
                for (what, other) in others {
                    assert!(worst(&right[0], &answer(&other, &inputs)[0].values) > 1.0, "{text}: another {what}");
                }
            }
        }
    }
}
