//! The reference: plain loops, one thread, any shape.
//!
//! Idea: a row of a mask at a time; each head that shares it adds, for each key its query sees, the gradient of one score
//! from two dot products. Wins: a handful of queries and keys, where nothing is worth preparing. Limits: none; it fits
//! everything and is the fallback.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Variant};
use warplap_cpu::simd::Element;
use warplap_cpu::{Cpu, Typed};

use super::places::PLACES;
use crate::attention::AttentionProblem;
use crate::attention_grad::cpu::call::{Call, row, row_mut, write};
use crate::attention_grad::cpu::reference::{dot, is_small};
use crate::attention_mask_grad::{AttentionMaskGrad, AttentionMaskGradProblem, sharing, slot};
use crate::typed::for_dtype;

/// Plain loops.
pub(super) struct Reference;

impl Variant<AttentionMaskGrad, Cpu> for Reference {
    fn id(&self) -> &str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, AttentionMaskGradProblem(p): &AttentionMaskGradProblem, _: &Cpu) -> Fit {
        if is_small(p) { Fit::HIGH } else { Fit::LOW }
    }

    fn space(&self, _: &AttentionMaskGradProblem, _: &Cpu) -> Space {
        Space::single()
    }

    fn build(&self, p: &AttentionMaskGradProblem, _: &Config, _: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok(Box::new(Loops(p.0)))
    }
}

struct Loops(AttentionProblem);

impl Kernel<Cpu> for Loops {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.0.dtype, T => differentiate::<T>(&self.0, args))
    }
}

fn differentiate<T: Element + Typed>(p: &AttentionProblem, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let call = Call::<T>::new(p, args, PLACES)?;
    let to = write::<T>(args, slot::DMASK, p.mask_strides())?;
    let (d, dv, sq, sk) = (p.d as usize, p.dv as usize, p.sq as usize, p.sk as usize);
    let ([masks, heads], [batches, along]) = (p.masks(), sharing(p));
    let mut sums = vec![0f32; sk];
    for n in 0..(masks * heads) as usize * sq {
        let (mask, i) = (n / sq, n % sq);
        let first = [mask / heads as usize, mask % heads as usize];
        sums.fill(0.0);
        for (b, h) in (0..batches as usize).flat_map(|b| (0..along as usize).map(move |h| (b, h))) {
            let (b, h) = (first[0] + b, first[1] + h);
            let at = [b, h, i];
            // SAFETY: the call's tensors have these rows of d and dv elements, the mask rows of sk, and the log-sum-exps
            // are one for each query.
            unsafe {
                let (q, g) = (row(call.q, at, d), row(call.grad, at, dv));
                let delta = dot(g, row(call.out, at, dv));
                let lse = *call.lse.add((b * p.h as usize + h) * sq + i);
                let mask = std::slice::from_raw_parts(call.line(p, at), sk);
                let seen = if lse == f32::NEG_INFINITY { 0..0 } else { call.sight(p, b).of_query(i) };
                let (score_mod, drops) = (call.score_mod(p, at), call.drops(p, [b, h]));
                for j in seen {
                    let met = [b, h / p.group() as usize, j];
                    let score = score_mod(dot(q, row(call.k, met, d)) * p.scale(), j).0;
                    let weight = (score + mask[j].widen() - lse).exp();
                    let kept = drops.map_or(1.0, |drops| drops.factor(i, j));
                    sums[j] += weight * (dot(g, row(call.v, met, dv)) * kept - delta);
                }
            }
        }
        // SAFETY: this thread alone writes.
        let line = unsafe { row_mut(to, [first[0], first[1], i], sk) };
        line.iter_mut().zip(&sums).for_each(|(to, sum)| *to = T::narrow(*sum));
    }
    Ok(())
}
