//! The reference: plain loops, one thread, any shape.
//!
//! Idea: for each query and each key it sees, the weight and its gradient from two dot products; three rows grow by them.
//! Sums of one head of K are kept in f32. Wins: a handful of queries and keys, where nothing is worth preparing.
//! Limits: none; it fits everything and is the fallback.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Variant};
use warplap_cpu::simd::Element;
use warplap_cpu::{Cpu, Typed};

use super::call::{Call, Gradients, PLACES, row, row_mut};
use crate::attention::AttentionProblem;
use crate::attention_grad::{AttentionGrad, AttentionGradProblem};
use crate::typed::for_dtype;

/// Plain loops.
pub(super) struct Reference;

/// Multiplications up to which plain loops are worth racing.
const SMALL: u64 = 4096;

/// Whether plain loops are worth racing.
pub(crate) fn is_small(p: &AttentionProblem) -> bool {
    p.b * p.h <= SMALL && p.b * p.h * p.pairs().min(SMALL) * (p.d + p.dv) <= SMALL
}

impl Variant<AttentionGrad, Cpu> for Reference {
    fn id(&self) -> &str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        source!(crate::faer::VERSION)
    }

    fn fit(&self, AttentionGradProblem(p): &AttentionGradProblem, _: &Cpu) -> Fit {
        if is_small(p) { Fit::HIGH } else { Fit::LOW }
    }

    fn space(&self, _: &AttentionGradProblem, _: &Cpu) -> Space {
        Space::single()
    }

    fn build(&self, p: &AttentionGradProblem, _: &Config, _: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok(Box::new(Loops(p.0)))
    }
}

struct Loops(AttentionProblem);

impl Kernel<Cpu> for Loops {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.0.dtype, T => differentiate::<T>(&self.0, args))
    }
}

pub(crate) fn dot<T: Element>(a: &[T], b: &[T]) -> f32 {
    a.iter().zip(b).map(|(x, y)| x.widen() * y.widen()).sum()
}

fn grow<T: Element>(sums: &mut [f32], by: f32, row: &[T]) {
    sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += by * x.widen());
}

fn put<T: Element>(to: &mut [T], sums: &[f32], scale: f32) {
    to.iter_mut().zip(sums).for_each(|(to, sum)| *to = T::narrow(sum * scale));
}

fn differentiate<T: Element + Typed>(p: &AttentionProblem, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let (call, to) = (Call::<T>::new(p, args, PLACES)?, Gradients::<T>::new(p, args)?);
    let (d, dv, scale) = (p.d as usize, p.dv as usize, p.scale());
    let most = p.sk as usize;
    let (mut of_q, mut of_k, mut of_v) = (vec![0f32; d], vec![0f32; most * d], vec![0f32; most * dv]);
    for shared in 0..(p.b * p.hkv) as usize {
        let (b, kv) = (shared / p.hkv as usize, shared % p.hkv as usize);
        let ([own, met], sight, sums) = (call.stretches(p, b), call.sight(p, b), p.lse_strides());
        of_k.fill(0.0);
        of_v.fill(0.0);
        for h in kv * p.group() as usize..(kv + 1) * p.group() as usize {
            for i in 0..own.len() {
                let at = [b, h, own.start + i];
                // SAFETY: the call's tensors have these rows of d and dv elements, the mask rows of sk, and the
                // log-sum-exps are one for each query; this thread alone writes.
                unsafe {
                    let (q, g) = (row(call.q, at, d), row(call.grad, at, dv));
                    let delta = dot(g, row(call.out, at, dv));
                    let lse = *call.lse.add(b * sums.batch + h * sums.head + own.start + i);
                    let line = call.line(p, [b, h, i]);
                    let mask = (!line.is_null()).then(|| std::slice::from_raw_parts(line, most));
                    let seen = if lse == f32::NEG_INFINITY { 0..0 } else { sight.of_query(i) };
                    let (score_mod, drops) = (call.score_mod(p, [b, h, i]), call.drops(p, [b, h]));
                    of_q.fill(0.0);
                    for j in seen {
                        let met = [b, kv, met.start + j];
                        let (k, v) = (row(call.k, met, d), row(call.v, met, dv));
                        let (score, steep) = score_mod(dot(q, k) * scale, j);
                        let weight = (score + mask.map_or(0.0, |m| m[j].widen()) - lse).exp();
                        let kept = drops.map_or(1.0, |drops| drops.factor(i, j));
                        let slope = weight * (dot(g, v) * kept - delta) * steep;
                        grow(&mut of_q, slope, k);
                        grow(&mut of_k[j * d..(j + 1) * d], slope, q);
                        grow(&mut of_v[j * dv..(j + 1) * dv], weight * kept, g);
                    }
                    put(row_mut(to.dq, at, d), &of_q, scale);
                }
            }
        }
        for j in 0..met.len() {
            let at = [b, kv, met.start + j];
            // SAFETY: as above.
            unsafe {
                put(row_mut(to.dk, at, d), &of_k[j * d..(j + 1) * d], scale);
                put(row_mut(to.dv, at, dv), &of_v[j * dv..(j + 1) * dv], 1.0);
            }
        }
    }
    Ok(())
}
