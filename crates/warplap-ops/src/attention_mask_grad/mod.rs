//! The gradient of what attention adds to its scores, without the matrix of scores.
//!
//! With P = exp(scale · Q·Kᵀ + mask − lse), dP = dO·Vᵀ and delta = rowsum(dO ∘ O): dS = P ∘ (dP − delta), and the mask's
//! gradient is dS, summed over all batches and heads that share the mask. A cap bends scores before the mask is added, so
//! its slope is no part of it. Where weights were dropped, with factors Z: dP = Z ∘ dO·Vᵀ. As in `attention_grad`, O and
//! the log-sum-exps are taken as they are.

#[cfg(feature = "cpu")]
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod edges;
mod op;

pub use op::AttentionMaskGradProblem;

use warplap_core::array::Array;
use warplap_core::op::{Answer, Op};
use warplap_core::slot::{Role, Signature, Slot};

use crate::attention::{AttentionProblem, ScoreMod, added, drops, gather};
use crate::attention_grad::line::Line;
use crate::attention_grad::reach::Reach;
use crate::attention_grad::slot as all;
use crate::attention_grad::{AttentionGrad, AttentionGradProblem, ROWS, turned};
use crate::right;

/// The operation of the gradient of attention's mask.
#[derive(Clone, Copy, Debug)]
pub struct AttentionMaskGrad;

/// The slots of a launch; the first seven are those of `attention_grad`.
pub mod slot {
    pub use crate::attention_grad::slot::{GRAD, K, LSE, MASK, OUT, Q, V};

    /// The gradient of the mask, which lies as the mask does.
    pub const DMASK: usize = 7;
    /// What a key's distance was multiplied with, f32, one a head, where the problem has `alibi=true`.
    pub const SLOPES: usize = 8;
    /// Seed and stream of what was dropped, two i64, where the problem has `dropout`.
    pub const SEED: usize = 9;
}

/// Slots of a launch.
pub(crate) const SLOTS: usize = 10;

impl Op for AttentionMaskGrad {
    const NAME: &'static str = "attention_mask_grad";

    type Problem = AttentionMaskGradProblem;

    fn signature(AttentionMaskGradProblem(p): &AttentionMaskGradProblem) -> Signature {
        let Signature(mut slots) = AttentionGrad::signature(&AttentionGradProblem(*p));
        let others = [all::SLOPES, all::SEED].map(|slot| slots[slot].clone());
        slots.truncate(slot::DMASK);
        slots.push(Slot { name: "dmask".into(), role: Role::Out, ..slots[slot::MASK].clone() });
        slots.extend(others);
        Signature(slots)
    }

    fn draw(AttentionMaskGradProblem(p): &AttentionMaskGradProblem, rng: &mut fastrand::Rng) -> Vec<Array> {
        let mut inputs = AttentionGrad::draw(&AttentionGradProblem(*p), rng);
        let others = [all::SLOPES, all::SEED].map(|slot| std::mem::replace(&mut inputs[slot], Array::none()));
        inputs.truncate(slot::DMASK);
        inputs.push(Array::none());
        inputs.extend(others);
        inputs
    }

    fn answer(AttentionMaskGradProblem(p): &AttentionMaskGradProblem, inputs: &[Array]) -> Vec<Answer> {
        let wide_inputs = [slot::Q, slot::K, slot::V, slot::OUT, slot::GRAD, slot::LSE].map(|i| inputs[i].to_f64());
        let [q, k, v, out, grad, lse] = &wide_inputs;
        let mask = added(p, &inputs[slot::MASK]).unwrap_or_default();
        let leans = if p.alibi { inputs[slot::SLOPES].to_f64() } else { vec![0.0; p.h as usize] };
        let (sq, sk, d, dv) = (p.sq as usize, p.sk as usize, p.d as usize, p.dv as usize);
        let (sight, strides) = (p.sight(), p.mask_strides());
        let score_mod = ScoreMod::with(p, sight);
        let (mut values, mut met) = (vec![0f64; p.mask_len()], vec![0f64; p.mask_len()]);
        let mut reach = Reach::new(lse);
        for head in 0..(p.b * p.h) as usize {
            let (b, h) = (head / p.h as usize, head % p.h as usize);
            let (kv, drops) = (h / p.group() as usize, drops(p, &inputs[slot::SEED], head));
            let queries = gather(q, p.q_strides(), [b, h], 0..sq, d);
            let keys = gather(k, p.k_strides(), [b, kv], 0..sk, d);
            let these = gather(v, p.v_strides(), [b, kv], 0..sk, dv);
            let [o, g] = [out, grad].map(|t| gather(t, p.o_strides(), [b, h], 0..sq, dv));
            reach.head([(&queries, d), (&keys, d), (&these, dv), (&o, dv), (&g, dv)]);
            let (keys, these) = (turned(sk, d, &keys), turned(sk, dv, &these));
            for first in (0..sq).step_by(ROWS) {
                let rows = ROWS.min(sq - first);
                let products = right::product(rows, sk, d, &queries[first * d..], &keys);
                let slopes = right::product(rows, sk, dv, &g[first * dv..], &these);
                for i in 0..rows {
                    let row = first + i;
                    let at = b * strides.batch + h * strides.head + row * strides.row;
                    let delta = (0..dv).map(|x| g[row * dv + x] * o[row * dv + x]).sum();
                    let (lean, lse, mask) = (leans[h], lse[head * sq + row], Some(&mask[at..][..sk]));
                    let line = Line { score_mod, keys: sight.of_query(row), lse, delta, lean, mask, drops, row };
                    for j in 0..sk {
                        let pair = line.pair(j, products[i * sk + j], slopes[i * sk + j]);
                        values[at + j] += pair.slope;
                        met[at + j] += pair.weight;
                    }
                }
            }
        }
        let most = met.into_iter().fold(0f64, f64::max);
        vec![Answer { values, tolerance: reach.of_scores(p, sharing(p).iter().product(), most) }]
    }
}

/// Batches and heads that share a mask.
pub(crate) fn sharing(p: &AttentionProblem) -> [u64; 2] {
    let [batches, heads] = p.masks();
    [p.b / batches, p.h / heads]
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
