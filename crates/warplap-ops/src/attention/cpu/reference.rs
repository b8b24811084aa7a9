//! The reference: plain loops, one thread, any shape.
//!
//! Idea: for each query the scores, their softmax, and the weighted sum of values, in three loops over the keys. Wins:
//! a handful of queries and keys, where nothing is worth preparing. Limits: none; it fits everything and is the
//! fallback.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Variant};
use warplap_cpu::simd::Element;
use warplap_cpu::{Cpu, Typed};

use super::call::Call;
use super::softmax::{LOWEST, inverse};
use crate::attention::{Attention, AttentionProblem};
use crate::typed::for_dtype;

/// Plain loops.
pub(super) struct Reference;

/// Multiplications up to which plain loops are worth racing.
const SMALL: u64 = 4096;

impl Variant<Attention, Cpu> for Reference {
    fn id(&self) -> &str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &AttentionProblem, _: &Cpu) -> Fit {
        let small = p.b * p.h <= SMALL && p.b * p.h * p.pairs().min(SMALL) * (p.d + p.dv) <= SMALL;
        if small { Fit::HIGH } else { Fit::LOW }
    }

    fn space(&self, _: &AttentionProblem, _: &Cpu) -> Space {
        Space::single()
    }

    fn build(&self, p: &AttentionProblem, _: &Config, _: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        Ok(Box::new(Loops { problem: *p }))
    }
}

struct Loops {
    problem: AttentionProblem,
}

impl Kernel<Cpu> for Loops {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.dtype, T => attend::<T>(&self.problem, args))
    }
}

fn attend<T: Element + Typed>(problem: &AttentionProblem, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let call = Call::<T>::new(problem, args)?;
    let (mut weights, mut sums) = (vec![0f32; call.sk], vec![0f32; call.dv]);
    for head in 0..call.heads {
        for row in 0..call.rows(head) {
            let seen = call.unseen(head, row)..call.seen(head, row);
            // SAFETY: the call's rows hold d, d, dv and sk elements; this thread alone writes.
            unsafe {
                let q = std::slice::from_raw_parts(call.q(head, row), call.d);
                let mask = call.mask(head, row).map(|m| std::slice::from_raw_parts(m, call.sk));
                let mut most = LOWEST;
                for j in seen.clone() {
                    let k = std::slice::from_raw_parts(call.k(head, j), call.d);
                    let dot: f32 = q.iter().zip(k).map(|(x, y)| x.widen() * y.widen()).sum();
                    weights[j] = dot * call.scale;
                }
                call.modify_scores(head, row, seen.start, &mut weights[seen.clone()]);
                for j in seen.clone() {
                    let added = mask.map_or(0.0, |m| m[j].widen());
                    weights[j] = if call.is_there(head, j) { weights[j] + added } else { f32::NEG_INFINITY };
                    most = most.max(weights[j]);
                }
                sums.fill(0.0);
                let mut total = 0.0;
                for j in seen.clone() {
                    weights[j] = (weights[j] - most).exp();
                    total += weights[j];
                }
                call.drop_some(head, row, seen.start, &mut weights[seen.clone()]);
                for j in seen {
                    // What lies at the place of a key that is nowhere may be no number.
                    if !call.is_there(head, j) {
                        continue;
                    }
                    let v = std::slice::from_raw_parts(call.v(head, j), call.dv);
                    sums.iter_mut().zip(v).for_each(|(sum, x)| *sum += weights[j] * x.widen());
                }
                let out = std::slice::from_raw_parts_mut(call.out(head, row), call.dv);
                out.iter_mut().zip(&sums).for_each(|(to, sum)| *to = T::narrow(sum * inverse(total)));
                call.keep(head, row, most, 1.0, total);
            }
        }
    }
    Ok(())
}
