//! Attention backward: dQ, dK and dV from Q, K, V, O, the log-sum-exps of the scores and the gradient of O, head by head,
//! without the matrix of scores.
//!
//! With P = exp(scale · Q·Kᵀ + mask − lse), dP = dO·Vᵀ and delta = rowsum(dO ∘ O): dS = P ∘ (dP − delta), and then
//! dQ = scale · dS·K, dK = scale · dSᵀ·Q, dV = Pᵀ·dO. The answer follows from the inputs as they are: O and the
//! log-sum-exps that are drawn need not be those of a forward pass. Where weights were dropped, with factors Z: dP = Z ∘
//! dO·Vᵀ and dV = (Z ∘ P)ᵀ·dO.

#[cfg(feature = "cpu")]
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod edges;
pub(crate) mod line;
mod op;
pub(crate) mod reach;

pub use op::AttentionGradProblem;

use warplap_core::array::Array;
use warplap_core::dtype::DType;
use warplap_core::op::{Answer, Op};
use warplap_core::slot::{Role, Signature, Slot};

use crate::attention::packed::Batches;
use crate::attention::slot as forward;
use crate::attention::{
    Attention, AttentionProblem, QUERY_SPREAD, ScoreMod, Strides, added, drops, gather, hides_all, offsets,
};
use crate::right;
use line::Line;
use reach::Reach;

/// The operation of attention's gradients.
#[derive(Clone, Copy, Debug)]
pub struct AttentionGrad;

/// The slots of a launch.
pub mod slot {
    /// Q, shaped `[b, h, sq, d]`.
    pub const Q: usize = 0;
    /// K, shaped `[b, hkv, sk, d]`.
    pub const K: usize = 1;
    /// V, shaped `[b, hkv, sk, dv]`.
    pub const V: usize = 2;
    /// What was added to the scaled scores, shaped `[1 or b, 1 or h, sq, sk]`, where the problem has `mask=add`.
    pub const MASK: usize = 3;
    /// O, shaped `[b, h, sq, dv]`.
    pub const OUT: usize = 4;
    /// The logarithm of the sum of a row's exponentials, f32, shaped `[b, h, sq]`; -inf where a query sees nothing.
    pub const LSE: usize = 5;
    /// The gradient of O, which lies as O does.
    pub const GRAD: usize = 6;
    /// The gradient of Q.
    pub const DQ: usize = 7;
    /// The gradient of K.
    pub const DK: usize = 8;
    /// The gradient of V.
    pub const DV: usize = 9;
    /// What a key's distance was multiplied with, f32, one a head, where the problem has `alibi=true`.
    pub const SLOPES: usize = 10;
    /// Seed and stream of what was dropped, two i64, where the problem has `dropout`.
    pub const SEED: usize = 11;
    /// Where the queries of each sequence begin, and where those of the last end, i32, shaped `[b + 1]`, where the
    /// problem has `tq`. Rows that no sequence has are not written.
    pub const OFFSETS_Q: usize = 12;
    /// The same of keys.
    pub const OFFSETS_K: usize = 13;
}

/// Slots of a launch.
pub(crate) const SLOTS: usize = 14;

impl Op for AttentionGrad {
    const NAME: &'static str = "attention_grad";

    type Problem = AttentionGradProblem;

    fn signature(AttentionGradProblem(p): &AttentionGradProblem) -> Signature {
        let Signature(mut slots) = Attention::signature(p);
        let others = [forward::SLOPES, forward::SEED, forward::OFFSETS_Q, forward::OFFSETS_K];
        let others = others.map(|slot| slots[slot].clone());
        slots.truncate(slot::LSE);
        let as_is = |slot: usize, name: &'static str, role| Slot { name: name.into(), role, ..slots[slot].clone() };
        let more = [
            Slot::input("lse", DType::F32, &p.lse_shape()),
            as_is(slot::OUT, "grad", Role::In),
            as_is(slot::Q, "dq", Role::Out),
            as_is(slot::K, "dk", Role::Out),
            as_is(slot::V, "dv", Role::Out),
        ];
        slots[slot::OUT].role = Role::In;
        slots.extend(more.into_iter().chain(others));
        Signature(slots)
    }

    fn draw(AttentionGradProblem(p): &AttentionGradProblem, rng: &mut fastrand::Rng) -> Vec<Array> {
        let mut inputs = Attention::draw(p, rng);
        let mut take = |slots: [usize; 2]| slots.map(|slot| std::mem::replace(&mut inputs[slot], Array::none()));
        let [slopes, seed] = take([forward::SLOPES, forward::SEED]);
        let starts = take([forward::OFFSETS_Q, forward::OFFSETS_K]);
        inputs.truncate(slot::LSE);
        if !is_exact(p) {
            calm(p, &mut inputs[slot::Q]);
        }
        let lse = lse(p, &inputs, &slopes, &starts, rng);
        inputs[slot::OUT] = Array::random(p.dtype, p.o_len(), rng);
        inputs.push(Array::F32(lse));
        inputs.push(Array::random(p.dtype, p.o_len(), rng));
        inputs.extend([Array::none(), Array::none(), Array::none(), slopes, seed]);
        inputs.extend(starts);
        inputs
    }

    fn answer(AttentionGradProblem(p): &AttentionGradProblem, inputs: &[Array]) -> Vec<Answer> {
        let wide_inputs = [slot::Q, slot::K, slot::V, slot::OUT, slot::GRAD, slot::LSE].map(|i| inputs[i].to_f64());
        let [q, k, v, out, grad, lse] = &wide_inputs;
        let mask = added(p, &inputs[slot::MASK]);
        let leans = if p.alibi { inputs[slot::SLOPES].to_f64() } else { vec![0.0; p.h as usize] };
        let batches = Batches::of(p, offsets(p, inputs, [slot::OFFSETS_Q, slot::OFFSETS_K]));
        let (d, dv) = (p.d as usize, p.dv as usize);
        let mut gradients = [p.q_len(), p.k_len(), p.v_len()].map(|len| vec![0f64; len]);
        let mut reach = Reach::new(lse);
        for shared in 0..(p.b * p.hkv) as usize {
            let (b, kv) = (shared / p.hkv as usize, shared % p.hkv as usize);
            let (own, met) = (batches.queries(b), batches.keys(b));
            let (sq, sk) = (own.len(), met.len());
            if sk == 0 {
                continue;
            }
            let sight = p.sight_of(sq, sk);
            let score_mod = ScoreMod::with(p, sight);
            let keys = gather(k, p.k_strides(), [b, kv], met.clone(), d);
            let values = gather(v, p.v_strides(), [b, kv], met.clone(), dv);
            let (turned_keys, turned_values) = (turned(sk, d, &keys), turned(sk, dv, &values));
            let (mut of_k, mut of_v) = (vec![0f64; sk * d], vec![0f64; sk * dv]);
            let mut seen = reach::Columns::new(sk);
            for h in kv * p.group() as usize..(kv + 1) * p.group() as usize {
                let drops = drops(p, &inputs[slot::SEED], b * p.h as usize + h);
                let queries = gather(q, p.q_strides(), [b, h], own.clone(), d);
                let [o, g] = [out, grad].map(|t| gather(t, p.o_strides(), [b, h], own.clone(), dv));
                reach.head([(&queries, d), (&keys, d), (&values, dv), (&o, dv), (&g, dv)]);
                for first in (0..sq).step_by(ROWS) {
                    let rows = ROWS.min(sq - first);
                    let (queries, g) = (&queries[first * d..(first + rows) * d], &g[first * dv..(first + rows) * dv]);
                    let mut weights = right::product(rows, sk, d, queries, &turned_keys);
                    let mut slopes = right::product(rows, sk, dv, g, &turned_values);
                    for i in 0..rows {
                        let row = first + i;
                        let delta: f64 = (0..dv).map(|x| g[i * dv + x] * o[row * dv + x]).sum();
                        let (sums, strides) = (p.lse_strides(), p.added_strides());
                        let mask =
                            mask.as_ref().map(|m| &m[b * strides.batch + h * strides.head + row * strides.row..][..sk]);
                        let lse = lse[b * sums.batch + h * sums.head + own.start + row];
                        let line =
                            Line { score_mod, keys: sight.of_query(row), lse, delta, lean: leans[h], mask, drops, row };
                        for j in 0..sk {
                            let at = i * sk + j;
                            let pair = line.pair(j, weights[at], slopes[at]);
                            slopes[at] = pair.slope * pair.steep;
                            weights[at] = pair.weight * pair.kept;
                        }
                        reach.row(&weights[i * sk..][..sk], &slopes[i * sk..][..sk], &mut seen);
                    }
                    let scale = f64::from(p.scale());
                    let of_q = right::product(rows, d, sk, &slopes, &keys);
                    scatter(&mut gradients[0], p.q_strides(), [b, h, own.start + first], d, &of_q, scale);
                    add(&mut of_k, &right::product(sk, d, rows, &turned(rows, sk, &slopes), queries), scale);
                    add(&mut of_v, &right::product(sk, dv, rows, &turned(rows, sk, &weights), g), 1.0);
                }
            }
            reach.columns(&seen);
            scatter(&mut gradients[1], p.k_strides(), [b, kv, met.start], d, &of_k, 1.0);
            scatter(&mut gradients[2], p.v_strides(), [b, kv, met.start], dv, &of_v, 1.0);
        }
        gradients.into_iter().zip(reach.tolerances(p)).map(|(values, tolerance)| Answer { values, tolerance }).collect()
    }
}

/// Rows of scores a right answer holds at once.
pub(crate) const ROWS: usize = 256;

/// Multiplications up to which the log-sum-exps that are drawn are a forward pass's.
const EXACT: u64 = 1 << 27;

/// Whether log-sum-exps are a forward pass's own.
fn is_exact(p: &AttentionProblem) -> bool {
    p.b * p.h * p.sq * p.sk * p.d <= EXACT
}

/// The widest spread of scores, as a variance, at which what is to be expected of a row is about what it has.
const CALM: f64 = 2.0;

/// Makes queries so small that scores spread no wider than that: by a power of two, which leaves them exact.
fn calm(p: &AttentionProblem, queries: &mut Array) {
    // Elements between -4 and 4 with keys between -1 and 1.
    let spread = f64::from(p.scale()).powi(2) * p.d as f64 * QUERY_SPREAD * QUERY_SPREAD / 9.0;
    if spread > CALM {
        let by = (CALM / spread).sqrt().log2().floor().exp2();
        *queries = Array::from_f64(p.dtype, queries.to_f64().into_iter().map(|x| x * by));
    }
}

/// Log-sum-exps as a forward pass would have them: its own where that is soon done, else what is to be expected of keys
/// as they are drawn, row by row. Both are of the size that makes the weights of a row add up to about one.
fn lse(
    p: &AttentionProblem,
    inputs: &[Array],
    slopes: &Array,
    starts: &[Array; 2],
    rng: &mut fastrand::Rng,
) -> Vec<f32> {
    let d = p.d as usize;
    let (q, scale) = (inputs[slot::Q].to_f64(), f64::from(p.scale()));
    let exact = is_exact(p);
    let (strides, sums) = (p.added_strides(), p.lse_strides());
    let batches = Batches::of(p, [&starts[0], &starts[1]]);
    let leans = if p.alibi { slopes.to_f64() } else { vec![0.0; p.h as usize] };
    let k = if exact { inputs[slot::K].to_f64() } else { Vec::new() };
    // What is added to every pair takes as long as a race where pairs are many: only scores need it.
    let mask = if exact { added(p, &inputs[slot::MASK]).unwrap_or_default() } else { Vec::new() };
    let mut all = vec![f32::NEG_INFINITY; p.lse_len()];
    for head in 0..(p.b * p.h) as usize {
        let (b, h) = (head / p.h as usize, head % p.h as usize);
        let (own, met) = (batches.queries(b), batches.keys(b));
        let (sq, sk) = (own.len(), met.len());
        let sight = p.sight_of(sq, sk);
        let score_mod = ScoreMod::with(p, sight);
        let queries = gather(&q, p.q_strides(), [b, h], own.clone(), d);
        let scores = exact.then(|| {
            let keys = gather(&k, p.k_strides(), [b, h / p.group() as usize], met, d);
            right::product(sq, sk, d, &queries, &turned(sk, d, &keys))
        });
        for i in 0..sq {
            let seen = sight.of_query(i);
            let line = match mask.is_empty() {
                true => &[][..],
                false => &mask[b * strides.batch + h * strides.head + i * strides.row..][..sk],
            };
            if seen.is_empty() || hides_all(p, &inputs[slot::MASK], [b, h, i], seen.clone()) {
                continue;
            }
            let value = match &scores {
                Some(scores) => {
                    let added = |j: usize| line.get(j).copied().unwrap_or(0.0);
                    let score = |j: usize| score_mod.score(scores[i * sk + j], leans[h], added(j), i, j).0;
                    let row: Vec<f64> = seen.map(score).collect();
                    let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    most + row.iter().map(|s| (s - most).exp()).sum::<f64>().ln()
                }
                None => {
                    // Keys have elements between -1 and 1: scores vary by a third of the query's squares.
                    let squares: f64 = queries[i * d..(i + 1) * d].iter().map(|x| x * x).sum();
                    let spread = squares / 3.0 * scale * scale;
                    (seen.len() as f64).ln() + spread / 2.0 + rng.f64() * 0.2
                }
            };
            all[b * sums.batch + h * sums.head + own.start + i] = value as f32;
        }
    }
    all
}

/// A row-major matrix the other way round.
pub(crate) fn turned(rows: usize, columns: usize, from: &[f64]) -> Vec<f64> {
    let mut to = vec![0f64; rows * columns];
    for i in 0..rows {
        (0..columns).for_each(|j| to[j * rows + i] = from[i * columns + j]);
    }
    to
}

/// Puts rows of a head in their place.
fn scatter(to: &mut [f64], strides: Strides, [batch, head, first]: [usize; 3], width: usize, rows: &[f64], scale: f64) {
    for (i, row) in rows.chunks_exact(width).enumerate() {
        let at = batch * strides.batch + head * strides.head + (first + i) * strides.row;
        to[at..at + width].iter_mut().zip(row).for_each(|(to, x)| *to = x * scale);
    }
}

fn add(to: &mut [f64], more: &[f64], scale: f64) {
    to.iter_mut().zip(more).for_each(|(to, x)| *to += x * scale);
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
