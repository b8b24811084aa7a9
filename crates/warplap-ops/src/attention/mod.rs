//! Attention forward: O = softmax(scale · Q·Kᵀ + mask) · V, head by head, with grouped heads of K and V.

#[cfg(feature = "cpu")]
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod known;
mod problem;

pub use problem::{AttentionProblem, Mask, Order, Strides};

use warplap_core::array::Array;
use warplap_core::dtype::DType;
use warplap_core::op::{Answer, Op};
use warplap_core::slot::{Signature, Slot};
use warplap_core::tolerance::Tolerance;

use crate::right;

/// The operation O = softmax(scale · Q·Kᵀ + mask) · V.
#[derive(Clone, Copy, Debug)]
pub struct Attention;

/// The slots of a launch.
pub mod slot {
    /// Q, shaped `[b, h, sq, d]`.
    pub const Q: usize = 0;
    /// K, shaped `[b, hkv, sk, d]`.
    pub const K: usize = 1;
    /// V, shaped `[b, hkv, sk, dv]`.
    pub const V: usize = 2;
    /// What is added to the scaled scores, shaped `[sq, sk]`, where the problem has `mask=add`.
    pub const MASK: usize = 3;
    /// O, shaped `[b, h, sq, dv]`.
    pub const OUT: usize = 4;
    /// The logarithm of the sum of a row's exponentials, f32, shaped `[b, h, sq]`, where the problem has `lse=true`; -inf
    /// where a query sees nothing.
    pub const LSE: usize = 5;
}

/// Slots of a launch.
pub(crate) const SLOTS: usize = 6;

/// Bytes that buffers lie on, so that kernels may read vectors and the copy engine may fetch.
pub(crate) const ALIGN: u64 = 16;

/// Queries are drawn this much larger than keys, so that the softmax of a drawing is neither flat nor a single key.
pub(crate) const QUERY_SPREAD: f64 = 4.0;

impl Op for Attention {
    const NAME: &'static str = "attention";

    type Problem = AttentionProblem;

    fn signature(p: &AttentionProblem) -> Signature {
        let lies = |s: Strides| [s.batch, s.head, s.row, 1].map(|step| step as u64);
        let input = |name: &'static str, shape: &[u64]| Slot::input(name, p.dtype, shape).aligned(ALIGN);
        let output = |name: &'static str, shape: &[u64]| Slot::output(name, p.dtype, shape).aligned(ALIGN);
        Signature(vec![
            input("q", &[p.b, p.h, p.sq, p.d]).strided(&lies(p.q_strides())),
            input("k", &[p.b, p.hkv, p.sk, p.d]).strided(&lies(p.k_strides())),
            input("v", &[p.b, p.hkv, p.sk, p.dv]).strided(&lies(p.v_strides())),
            input("mask", &[p.sq, p.sk]).when(p.mask == Mask::Add),
            output("out", &[p.b, p.h, p.sq, p.dv]).strided(&lies(p.o_strides())),
            Slot::output("lse", DType::F32, &[p.b, p.h, p.sq]).when(p.lse),
        ])
    }

    fn draw(p: &AttentionProblem, rng: &mut fastrand::Rng) -> Vec<Array> {
        let q = Array::from_f64(p.dtype, (0..p.q_len()).map(|_| (rng.f64() * 2.0 - 1.0) * QUERY_SPREAD));
        let (k, v) = (Array::random(p.dtype, p.k_len(), rng), Array::random(p.dtype, p.v_len(), rng));
        // One pair in eight is hidden, and one row in the middle sees nothing.
        let hidden = if p.sq > 2 { p.sq / 2 * p.sk..(p.sq / 2 + 1) * p.sk } else { 0..0 };
        let entry = |i: u64| {
            if hidden.contains(&i) || rng.u32(..8) == 0 { f64::NEG_INFINITY } else { rng.f64() * 2.0 - 1.0 }
        };
        let mask = match p.mask {
            Mask::None => Array::none(),
            Mask::Add => Array::from_f64(p.dtype, (0..p.sq * p.sk).map(entry)),
        };
        vec![q, k, v, mask, Array::none(), Array::none()]
    }

    fn answer(p: &AttentionProblem, inputs: &[Array]) -> Vec<Answer> {
        let [q, k, v] = [slot::Q, slot::K, slot::V].map(|i| inputs[i].to_f64());
        let mask = (p.mask == Mask::Add).then(|| inputs[slot::MASK].to_f64());
        let (sq, sk, d, dv) = (p.sq as usize, p.sk as usize, p.d as usize, p.dv as usize);
        let mut values = vec![0f64; p.o_len()];
        let mut sums = vec![0f64; if p.lse { p.lse_len() } else { 0 }];
        let mut seen = Spread::default();
        for head in 0..(p.b * p.h) as usize {
            let (b, h) = (head / p.h as usize, head % p.h as usize);
            let kv = h / p.group() as usize;
            let q = gather(&q, p.q_strides(), b, h, sq, d);
            let k = gather(&k, p.k_strides(), b, kv, sk, d);
            let v = gather(&v, p.v_strides(), b, kv, sk, dv);
            let mut columns = vec![0f64; sk * d];
            for j in 0..sk {
                (0..d).for_each(|x| columns[x * sk + j] = k[j * d + x]);
            }
            seen.score = seen.score.max(right::largest_row_norm(sq, d, &q) * right::largest_row_norm(sk, d, &k));
            seen.value = v.iter().fold(seen.value, |most, x| most.max(x.abs()));
            for first in (0..sq).step_by(ROWS) {
                let rows = ROWS.min(sq - first);
                // No row of this block sees further: the rest of the keys would be multiplied with zeros.
                let keys = if p.causal { (first + rows).min(sk) } else { sk };
                let mut weights = right::product(rows, sk, d, &q[first * d..], &columns);
                for (i, row) in weights.chunks_exact_mut(sk).enumerate() {
                    let line = mask.as_ref().map(|m| &m[(first + i) * sk..][..sk]);
                    let (norm, lse) = softmax(row, f64::from(p.scale()), line, p.causal, first + i);
                    seen.weights = seen.weights.max(norm);
                    if p.lse {
                        sums[head * sq + first + i] = lse;
                    }
                }
                let weights: Vec<f64> = weights.chunks_exact(sk).flat_map(|row| &row[..keys]).copied().collect();
                let o = right::product(rows, dv, keys, &weights, &v);
                let to = p.o_strides();
                for i in 0..rows {
                    let at = b * to.batch + h * to.head + (first + i) * to.row;
                    values[at..at + dv].copy_from_slice(&o[i * dv..(i + 1) * dv]);
                }
            }
        }
        seen.score *= f64::from(p.scale().abs());
        let mut answers = vec![Answer { values, tolerance: seen.tolerance(p) }];
        if p.lse {
            answers.push(Answer { values: sums, tolerance: seen.lse_tolerance(p) });
        }
        answers
    }
}

/// Rows of scores the right answer holds at once.
const ROWS: usize = 256;

/// One head in double precision, row by row.
pub(crate) fn gather(from: &[f64], strides: Strides, batch: usize, head: usize, rows: usize, width: usize) -> Vec<f64> {
    let start = batch * strides.batch + head * strides.head;
    (0..rows).flat_map(|i| &from[start + i * strides.row..][..width]).copied().collect()
}

/// Turns raw scores into weights and gives their Euclidean norm, and the log-sum-exp of the scores. A row that sees
/// nothing becomes zeros, with -inf.
fn softmax(row: &mut [f64], scale: f64, mask: Option<&[f64]>, causal: bool, query: usize) -> (f64, f64) {
    for (j, x) in row.iter_mut().enumerate() {
        let added = mask.map_or(0.0, |m| m[j]);
        *x = if causal && j > query { f64::NEG_INFINITY } else { *x * scale + added };
    }
    let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let most = if most == f64::NEG_INFINITY { 0.0 } else { most };
    row.iter_mut().for_each(|x| *x = (*x - most).exp());
    let sum: f64 = row.iter().sum();
    let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt();
    let factor = if sum > 0.0 { 1.0 / sum } else { 0.0 };
    row.iter_mut().for_each(|x| *x *= factor);
    (norm * factor, most + sum.ln())
}

/// The largest magnitudes met on the way to an answer.
#[derive(Default)]
struct Spread {
    /// Norm of a query times norm of a key, scaled.
    score: f64,
    /// Norm of a row of weights.
    weights: f64,
    /// A value.
    value: f64,
}

impl Spread {
    /// A weighted sum of values is at most the largest value, and a score that is off by e makes its weight off by a
    /// factor 1 + e. Where storage is half precision, weights may be rounded to it before the second product, as
    /// matrix units demand: independent roundings, so they add up like the weights' norm.
    fn tolerance(&self, p: &AttentionProblem) -> Tolerance {
        let mut tolerance = Tolerance::dot(p.dtype, DType::F32, p.sk as usize, self.value * (1.0 + self.score));
        if p.dtype != DType::F32 {
            tolerance.floor += 3.0 * p.dtype.roundoff() * self.weights * self.value;
        }
        tolerance
    }

    /// A log-sum-exp is off by no more than its scores are, and by the roundings of its sum and of its logarithm.
    fn lse_tolerance(&self, p: &AttentionProblem) -> Tolerance {
        Tolerance::dot(DType::F32, DType::F32, p.d.max(p.sk) as usize, 2.0 + self.score)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_answer_is_the_plain_loops() {
        for text in [
            "b=2,h=4,hkv=2,sq=3,sk=5,d=4,dv=3,dtype=f32",
            "h=2,sq=300,sk=7,d=2,dtype=f32,causal=true,layout=bshd",
            "h=2,sq=5,sk=9,d=3,dtype=f16,causal=true,mask=add,scale=-0.4",
            "h=1,sq=4,sk=1,d=1,dtype=bf16,mask=add,layout=bshd",
        ] {
            let p = Attention::parse(text).unwrap();
            let inputs = Attention::draw(&p, &mut fastrand::Rng::with_seed(5));
            let answer = &Attention::answer(&p, &inputs)[0];
            let at = |a: &Array, s: Strides, b: u64, h: u64, i: u64, x: u64| {
                a.at(b as usize * s.batch + h as usize * s.head + i as usize * s.row + x as usize)
            };
            for (b, h, i) in (0..p.b).flat_map(|b| (0..p.h).flat_map(move |h| (0..p.sq).map(move |i| (b, h, i)))) {
                let kv = h / p.group();
                let weight = |j: u64| {
                    let dot: f64 = (0..p.d)
                        .map(|x| {
                            at(&inputs[slot::Q], p.q_strides(), b, h, i, x)
                                * at(&inputs[slot::K], p.k_strides(), b, kv, j, x)
                        })
                        .sum();
                    let added = if p.mask == Mask::Add { inputs[slot::MASK].at((i * p.sk + j) as usize) } else { 0.0 };
                    if p.causal && j > i { 0.0 } else { (dot * f64::from(p.scale()) + added).exp() }
                };
                let sum: f64 = (0..p.sk).map(weight).sum();
                for x in 0..p.dv {
                    let total: f64 =
                        (0..p.sk).map(|j| weight(j) * at(&inputs[slot::V], p.v_strides(), b, kv, j, x)).sum();
                    let right = if sum > 0.0 { total / sum } else { 0.0 };
                    let o = p.o_strides();
                    let found =
                        answer.values[b as usize * o.batch + h as usize * o.head + i as usize * o.row + x as usize];
                    assert!((found - right).abs() < 1e-12, "{text}: {found} is not {right}");
                }
            }
        }
    }

    #[test]
    fn one_dropped_key_of_two_thousand_shows() {
        let p = AttentionProblem::new(1, 1, 8, 2048, 64, DType::F32);
        let inputs = Attention::draw(&p, &mut fastrand::Rng::with_seed(1));
        let answer = &Attention::answer(&p, &inputs)[0];
        let mut without = inputs.clone();
        if let Array::F32(v) = &mut without[slot::V] {
            v[1000 * 64..1001 * 64].fill(0.0);
        }
        let other = &Attention::answer(&p, &without)[0];
        let caught =
            answer.values.iter().zip(&other.values).filter(|(a, b)| (*a - *b).abs() > answer.tolerance.allowed(**a));
        assert!(caught.count() > p.o_len() / 2);
    }

    #[test]
    fn slots_span_what_the_problem_says_in_both_layouts() {
        for text in ["b=2,h=4,hkv=2,sq=3,sk=5,d=4,dv=3,mask=add", "b=2,h=4,hkv=2,sq=3,sk=5,d=4,dv=3,layout=bshd"] {
            let p = Attention::parse(text).unwrap();
            let signature = Attention::signature(&p);
            let lens: Vec<usize> = signature.slots().iter().map(Slot::len).collect();
            assert_eq!(lens, [p.q_len(), p.k_len(), p.v_len(), p.mask_len(), p.o_len(), 0], "{text}");
            assert_eq!(signature.slots()[slot::OUT].name, "out");
        }
    }
}
