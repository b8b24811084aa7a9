//! Attention forward: O = softmax(scale · Q·Kᵀ + mask) · V, head by head, with grouped heads of K and V.

#[cfg(feature = "cpu")]
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod edges;
mod keys;
mod mask;
mod memory;
mod op;
pub(crate) mod packed;
mod problem;
mod sight;
mod tiles;

pub use keys::Paged;
pub use mask::Mask;
pub use memory::{Order, Strides};
pub use packed::Packed;
pub use problem::AttentionProblem;
pub use sight::{Corner, Over, Sight};
pub(crate) use sight::{ScoreMod, usual_slopes};
pub use tiles::Tiles;

use std::ops::Range;

use warplap_core::array::Array;
use warplap_core::dtype::DType;
use warplap_core::op::{Answer, Op};
use warplap_core::slot::{Signature, Slot};
use warplap_core::tolerance::Tolerance;

use self::keys::Keys;
use self::packed::Batches;
use crate::philox::{Dropout, Drops};
use crate::right;

/// The operation O = softmax(scale · Q·Kᵀ + mask) · V.
#[derive(Clone, Copy, Debug)]
pub struct Attention;

/// The slots of a launch.
pub mod slot {
    /// Q, shaped `[b, h, sq, d]`; `[h, tq, d]` where sequences are packed, as K, V and O are then.
    pub const Q: usize = 0;
    /// K, shaped `[b, hkv, sk, d]`; `[pages, hkv, page, d]` where it is a pool of pages.
    pub const K: usize = 1;
    /// V, shaped `[b, hkv, sk, dv]`; `[pages, hkv, page, dv]` where it is a pool of pages.
    pub const V: usize = 2;
    /// What is added to the scaled scores, shaped `[1 or b, 1 or h, sq, sk]`, where the problem has `mask=add`; bytes that
    /// hide where they are zero where it has `mask=bool`; one for every square, `[1 or b, 1 or h, ceil(sq / tile),
    /// ceil(sk / tile)]`, where it has `mask=tiles`.
    pub const MASK: usize = 3;
    /// O, shaped `[b, h, sq, dv]`.
    pub const OUT: usize = 4;
    /// The logarithm of the sum of a row's exponentials, f32, shaped `[b, h, sq]` or `[h, tq]`, where the problem has
    /// `lse=true`; -inf where a query sees nothing.
    pub const LSE: usize = 5;
    /// What a key's distance is multiplied with before it is taken from a score, f32, one a head, where the problem has
    /// `alibi=true`.
    pub const SLOPES: usize = 6;
    /// Seed and stream of what is dropped, two i64, where the problem has `dropout`.
    pub const SEED: usize = 7;
    /// The page of each run of keys of each batch, i32, shaped `[b, ceil(sk / page)]`, where the problem has `page`. A
    /// number outside of the pool hides the keys.
    pub const TABLE: usize = 8;
    /// How many of the keys each batch has, i32, from 0 to sk, where the problem has `lengths=true`.
    pub const LENGTHS: usize = 9;
    /// Where the queries of each sequence begin among the rows of Q and O, and where those of the last end, i32, shaped
    /// `[b + 1]`, where the problem has `tq`. Rows that no sequence has are not written; nobody goes beyond `tq`.
    pub const OFFSETS_Q: usize = 10;
    /// The same of keys among the rows of K and V.
    pub const OFFSETS_K: usize = 11;
}

/// Slots of a launch.
pub const SLOTS: usize = 12;

/// Bytes that buffers lie on, so that kernels may read vectors and the copy engine may fetch.
pub(crate) const ALIGN: u64 = 16;

/// Queries are drawn this much larger than keys, so that the softmax of a drawing is neither flat nor a single key.
pub(crate) const QUERY_SPREAD: f64 = 4.0;

impl Op for Attention {
    const NAME: &'static str = "attention";

    type Problem = AttentionProblem;

    fn signature(p: &AttentionProblem) -> Signature {
        // One piece that holds all sequences has no dimension of its own.
        let from = usize::from(p.packed.is_some());
        let steps = |s: Strides| [s.batch, s.head, s.row, 1].map(|step| step as u64);
        let slot = |slot: Slot, s: Strides| slot.strided(&steps(s)[from..]).aligned(ALIGN);
        let ([stretches, rows], [pieces, keys]) = (p.stretches(), p.pieces());
        let input = |name: &'static str, shape: [u64; 4], s| slot(Slot::input(name, p.dtype, &shape[from..]), s);
        let output = |name: &'static str, shape: [u64; 4], s| slot(Slot::output(name, p.dtype, &shape[from..]), s);
        Signature(vec![
            input("q", [stretches, p.h, rows, p.d], p.q_strides()),
            input("k", [pieces, p.hkv, keys, p.d], p.k_strides()),
            input("v", [pieces, p.hkv, keys, p.dv], p.v_strides()),
            Slot::input("mask", p.mask_dtype(), &mask_shape(p)).aligned(ALIGN).when(p.mask != Mask::None),
            output("out", [stretches, p.h, rows, p.dv], p.o_strides()),
            Slot::output("lse", DType::F32, &p.lse_shape()).when(p.lse),
            Slot::input("slopes", DType::F32, &[p.h]).when(p.alibi),
            Slot::input("seed", DType::I64, &[2]).when(p.dropout() > 0.0),
            Slot::input("table", DType::I32, &[p.b, p.entries()]).when(p.paged.is_some()),
            Slot::input("lengths", DType::I32, &[p.b]).when(p.lengths),
            Slot::input("offsets_q", DType::I32, &[p.b + 1]).when(p.packed.is_some()),
            Slot::input("offsets_k", DType::I32, &[p.b + 1]).when(p.packed.is_some()),
        ])
    }

    fn draw(p: &AttentionProblem, rng: &mut fastrand::Rng) -> Vec<Array> {
        let spread = |_: usize, rng: &mut fastrand::Rng| (rng.f64() * 2.0 - 1.0) * QUERY_SPREAD;
        let q = Array::drawn(p.dtype, p.q_len(), rng, spread);
        let (k, v) = (Array::random(p.dtype, p.k_len(), rng), Array::random(p.dtype, p.v_len(), rng));
        // One pair in eight is hidden, and one row in the middle sees nothing.
        let (one, row) = ((p.sq * p.sk) as usize, (p.sq / 2 * p.sk) as usize);
        let hidden = if p.sq > 2 { row..row + p.sk as usize } else { 0..0 };
        let hides = |at: usize, rng: &mut fastrand::Rng| hidden.contains(&(at % one)) || rng.u32(..8) == 0;
        let mask = match p.mask {
            Mask::None => Array::none(),
            Mask::Add => Array::drawn(p.dtype, p.mask_len(), rng, |at, rng| match hides(at, rng) {
                true => f64::NEG_INFINITY,
                false => rng.f64() * 2.0 - 1.0,
            }),
            Mask::Bool => Array::drawn(DType::Bool, p.mask_len(), rng, |at, rng| f64::from(u8::from(!hides(at, rng)))),
            Mask::Tiles(tiles) => tiles::drawn(p, tiles, rng),
        };
        let slopes = if p.alibi { Array::from_f64(DType::F32, usual_slopes(p.h)) } else { Array::none() };
        let seed = if p.dropout() > 0.0 { Array::random(DType::I64, 2, rng) } else { Array::none() };
        let (table, lengths) = (keys::drawn_table(p, rng), keys::drawn_lengths(p, rng));
        let [offsets_q, offsets_k] = packed::drawn_offsets(p, rng);
        vec![q, k, v, mask, Array::none(), Array::none(), slopes, seed, table, lengths, offsets_q, offsets_k]
    }

    fn answer(p: &AttentionProblem, inputs: &[Array]) -> Vec<Answer> {
        let [q, k, v] = [slot::Q, slot::K, slot::V].map(|i| inputs[i].to_f64());
        let mask = added(p, &inputs[slot::MASK]);
        let slopes = if p.alibi { inputs[slot::SLOPES].to_f64() } else { vec![0.0; p.h as usize] };
        let keys = Keys::of(p, inputs);
        let batches = Batches::of(p, offsets(p, inputs, [slot::OFFSETS_Q, slot::OFFSETS_K]));
        let (d, dv) = (p.d as usize, p.dv as usize);
        let mut values = vec![0f64; p.o_len()];
        let mut sums = vec![f64::NEG_INFINITY; if p.lse { p.lse_len() } else { 0 }];
        let mut seen = Spread::default();
        for head in 0..(p.b * p.h) as usize {
            let (b, h) = (head / p.h as usize, head % p.h as usize);
            let (kv, drops) = (h / p.group() as usize, drops(p, &inputs[slot::SEED], head));
            let (own, met) = (batches.queries(b), batches.keys(b));
            let (sq, sk) = (own.len(), met.len());
            let sight = p.sight_of(sq, keys.len(b).min(sk));
            let score_mod = ScoreMod::with(p, sight);
            let nowhere: Vec<bool> = (0..sk).map(|j| keys.place(b, j).is_none()).collect();
            let q = gather(&q, p.q_strides(), [b, h], own.clone(), d);
            let k = keys.gather(&k, p.k_strides(), [b, kv], met.clone(), d);
            let v = keys.gather(&v, p.v_strides(), [b, kv], met, dv);
            let mut columns = vec![0f64; sk * d];
            for j in 0..sk {
                (0..d).for_each(|x| columns[x * sk + j] = k[j * d + x]);
            }
            seen.score = seen.score.max(right::largest_row_norm(sq, d, &q) * right::largest_row_norm(sk, d, &k));
            seen.value = v.iter().fold(seen.value, |most, x| most.max(x.abs()));
            // Without keys nothing is added to the zeros.
            for first in (0..if sk > 0 { sq } else { 0 }).step_by(ROWS) {
                let rows = ROWS.min(sq - first);
                // No row of this block sees further: the rest of the keys would be multiplied with zeros.
                let end = sight.of_query(first + rows - 1).end;
                let mut weights = right::product(rows, sk, d, &q[first * d..], &columns);
                for (i, row) in weights.chunks_exact_mut(sk).enumerate() {
                    let strides = p.added_strides();
                    let at = b * strides.batch + h * strides.head + (first + i) * strides.row;
                    let line = mask.as_ref().map(|m| &m[at..][..sk]);
                    let seen_keys = sight.of_query(first + i);
                    for (j, x) in row.iter_mut().enumerate() {
                        let score = score_mod.score(*x, slopes[h], line.map_or(0.0, |m| m[j]), first + i, j).0;
                        *x = if seen_keys.contains(&j) && !nowhere[j] { score } else { f64::NEG_INFINITY };
                    }
                    let (norm, lse) = softmax(row);
                    seen.weights = seen.weights.max(norm);
                    if let Some(drops) = &drops {
                        let factor = |j: usize| f64::from(drops.factor(first + i, j));
                        row.iter_mut().enumerate().for_each(|(j, x)| *x *= factor(j));
                    }
                    if p.lse {
                        let to = p.lse_strides();
                        sums[b * to.batch + h * to.head + own.start + first + i] = lse;
                    }
                }
                let weights: Vec<f64> = weights.chunks_exact(sk).flat_map(|row| &row[..end]).copied().collect();
                let o = right::product(rows, dv, end, &weights, &v);
                let to = p.o_strides();
                for i in 0..rows {
                    let at = b * to.batch + h * to.head + (own.start + first + i) * to.row;
                    values[at..at + dv].copy_from_slice(&o[i * dv..(i + 1) * dv]);
                }
            }
        }
        seen.score = seen.score * f64::from(p.scale().abs()) + leaning(p);
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
pub(crate) fn gather(
    from: &[f64],
    strides: Strides,
    [batch, head]: [usize; 2],
    rows: Range<usize>,
    width: usize,
) -> Vec<f64> {
    let start = batch * strides.batch + head * strides.head;
    rows.flat_map(|i| &from[start + i * strides.row..][..width]).copied().collect()
}

/// The offsets among inputs; none of a problem that has none.
pub(crate) fn offsets<'a>(p: &AttentionProblem, inputs: &'a [Array], slots: [usize; 2]) -> [&'a Array; 2] {
    // Whoever has none may have fewer inputs.
    slots.map(|slot| if p.packed.is_some() { &inputs[slot] } else { &inputs[0] })
}

/// The shape of the masks; those that are shared have no dimensions of their own.
fn mask_shape(p: &AttentionProblem) -> Vec<u64> {
    match p.over {
        Over::All => p.mask_sides().to_vec(),
        _ => [p.masks(), p.mask_sides()].concat(),
    }
}

/// What is added to scores, in double precision, where the problem has a mask.
pub(crate) fn added(p: &AttentionProblem, mask: &Array) -> Option<Vec<f64>> {
    let hides = |x: f64| if x == 0.0 { f64::NEG_INFINITY } else { 0.0 };
    match p.mask {
        Mask::None => None,
        Mask::Add => Some(mask.to_f64()),
        Mask::Bool => Some(mask.to_f64().into_iter().map(hides).collect()),
        Mask::Tiles(tiles) => Some(tiles::spread(p, tiles, mask)),
    }
}

/// Whether a mask hides all of these keys from a query of a batch and head.
pub(crate) fn hides_all(p: &AttentionProblem, mask: &Array, [b, h, i]: [usize; 3], mut keys: Range<usize>) -> bool {
    let (strides, shift) = (p.mask_strides(), p.mask.tiles().map_or(0, Tiles::shift));
    let at = b * strides.batch + h * strides.head + (i >> shift) * strides.row;
    match p.mask {
        Mask::None => false,
        Mask::Add => keys.all(|j| mask.at(at + j) == f64::NEG_INFINITY),
        Mask::Bool | Mask::Tiles(_) => keys.all(|j| mask.at(at + (j >> shift)) == 0.0),
    }
}

/// Which weights of a head are dropped, where some are.
pub(crate) fn drops(p: &AttentionProblem, seed: &Array, head: usize) -> Option<Drops> {
    let seed_words = || [0, 1].map(|i| seed.at(i) as i64 as u64);
    (p.dropout() > 0.0).then(|| Drops::new(Dropout::new(p.dropout()), seed_words(), head as u64))
}

/// How large what is bent and taken from scores may be, for slopes as they are drawn.
pub(crate) fn leaning(p: &AttentionProblem) -> f64 {
    let steepest = usual_slopes(p.h).fold(0f64, f64::max);
    let lean = if p.alibi { steepest * p.sq.max(p.sk) as f64 } else { 0.0 };
    lean + f64::from(p.softcap().unwrap_or(0.0))
}

/// Turns scores into weights and gives their Euclidean norm, and the log-sum-exp of the scores. A row that sees
/// nothing becomes zeros, with -inf.
fn softmax(row: &mut [f64]) -> (f64, f64) {
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
    /// Norm of a query times norm of a key, scaled, and what else a score consists of.
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
        // What is kept of dropped weights grows, and so does what it is off by.
        let value = self.value * f64::from(Dropout::new(p.dropout()).grown);
        let mut tolerance = Tolerance::dot(p.dtype, DType::F32, p.sk as usize, value * (1.0 + self.score));
        if p.dtype != DType::F32 {
            tolerance.floor += 3.0 * p.dtype.roundoff() * self.weights * value;
        }
        tolerance
    }

    /// A log-sum-exp is off by no more than its scores are, and by the roundings of its sum and of its logarithm.
    fn lse_tolerance(&self, p: &AttentionProblem) -> Tolerance {
        Tolerance::dot(DType::F32, DType::F32, p.d.max(p.sk) as usize, 2.0 + self.score)
    }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
