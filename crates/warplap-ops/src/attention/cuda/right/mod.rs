//! The right answer of attention, computed on the GPU in double precision. A problem and its inputs come in; what is
//! attended to and the tolerance go out. Held to the host's answer by the example `cuda-right`; never raced.

use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::op::Op;
use warplap_core::oracle::{FarAnswer, Inputs, Oracle};
use warplap_cuda::{BLOCK, Cuda, ELEMENT, PACKED, PHILOX, Source, dtype_code};

use crate::attention::cuda::plan::{below, length_fact, mask_code, packed_fact, page_fact, square_fact};
use crate::attention::{Attention, AttentionProblem, SLOTS, Spread, leaning, slot};
use crate::cuda::right::{Width, launch, magnitudes, read, refused, width_and_addresses};

/// Queries of one block, and columns of V.
const ROWS: u64 = 64;
const COLUMNS: u64 = 128;

/// Computes attention in double precision on a GPU.
pub(super) struct Right;

/// The kernel for a problem.
pub(super) fn source(p: &AttentionProblem, width: Width) -> Source {
    let facts = [
        ("DTYPE", dtype_code(p.dtype)),
        ("ALIBI", i64::from(p.alibi)),
        ("SOFTCAP", i64::from(p.softcap().is_some())),
        ("MASK", mask_code(p)),
        square_fact(p),
        ("DROPOUT", i64::from(p.dropout() > 0.0)),
        ("LSE", i64::from(p.lse)),
        page_fact(p),
        length_fact(p),
        packed_fact(p),
    ];
    let headers = &[BLOCK, ELEMENT, PHILOX, PACKED];
    Source { entry: "right", text: include_str!("right.cu"), headers, defines: width.facts(facts.to_vec()) }
}

/// Blocks for a problem: tiles of queries, parts of wide values, heads.
fn blocks(p: &AttentionProblem) -> Option<u64> {
    p.sq.div_ceil(ROWS).checked_mul(p.dv.div_ceil(COLUMNS))?.checked_mul(p.b)?.checked_mul(p.h)
}

impl Oracle<Attention, Cuda> for Right {
    fn answer(
        &self,
        p: &AttentionProblem,
        inputs: &Inputs<'_, Cuda>,
        cuda: &Cuda,
    ) -> Result<Vec<FarAnswer<Cuda>>, Error> {
        let (width, input_addresses) = width_and_addresses::<SLOTS>(&Attention::signature(p), inputs)?;
        if width == Width::Double && p.alibi {
            return Err(refused("slopes lie in float32 alone"));
        }
        let values = cuda.alloc_queued(DType::F64, p.o_len())?;
        let sums = cuda.alloc_queued(DType::F64, if p.lse { p.lse_len() } else { 1 })?;
        let (queries, keys) = (magnitudes(cuda, p.b * p.h)?, magnitudes(cuda, p.b * p.hkv)?);
        let others = magnitudes(cuda, 2)?;
        let slots = [slot::Q, slot::K, slot::V, slot::MASK, slot::SLOPES, slot::SEED, slot::TABLE, slot::LENGTHS];
        let slots = slots.into_iter().chain([slot::OFFSETS_Q, slot::OFFSETS_K]);
        let mut words = slots.map(|slot| input_addresses[slot]).collect::<Vec<_>>();
        words.extend([&values, &sums, &queries, &keys, &others].map(|buffer| buffer.address()));
        words.extend([p.h, p.group(), p.sq, p.sk, p.d, p.dv, f64::from(p.scale()).to_bits()]);
        words.extend(score_limits(p));
        for strides in [p.q_strides(), p.k_strides(), p.v_strides(), p.o_strides(), p.mask_strides()] {
            words.extend([strides.batch, strides.head, strides.row].map(|step| step as u64));
        }
        words.extend([u64::from(below(p)), p.pieces()[0], p.stretches()[1], p.pieces()[1]]);
        // SAFETY: the entry's parameters in order; inputs are those drawn for the problem, outputs were made for it.
        unsafe { launch(cuda, &source(p, width), blocks(p), &words) }?;
        let (queries, keys, others) = (read(cuda, &queries)?, read(cuda, &keys)?, read(cuda, &others)?);
        let spread = Spread {
            score: largest(&queries, &keys, p.group() as usize) * f64::from(p.scale().abs()) + leaning(p),
            value: others[0],
            weights: others[1].sqrt(),
        };
        let mut answers = vec![FarAnswer { values, tolerance: spread.tolerance(p) }];
        if p.lse {
            answers.push(FarAnswer { values: sums, tolerance: spread.lse_tolerance(p) });
        }
        Ok(answers)
    }
}

/// What scores stay below, and what queries see, as words.
pub(crate) fn score_limits(p: &AttentionProblem) -> [u64; 4] {
    let sight = p.sight();
    let ends = [sight.lower, sight.upper, sight.shift].map(|at| at as u64);
    [f64::from(p.softcap().unwrap_or(1.0)).to_bits(), ends[0], ends[1], ends[2]]
}

/// The largest product of the norms of a query and of a key of its head, from their squares by head.
fn largest(queries: &[f64], keys: &[f64], group: usize) -> f64 {
    let products = queries.iter().enumerate().map(|(head, q)| q.sqrt() * keys[head / group].sqrt());
    products.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::compiling;

    #[test]
    fn norms_are_multiplied_within_one_head_of_keys() {
        assert_eq!(largest(&[4.0, 1.0, 9.0, 1.0], &[25.0, 16.0], 2), 12.0);
        assert_eq!(largest(&[4.0, 9.0], &[1.0, 4.0], 1), 6.0);
    }

    #[test]
    fn every_tile_of_every_head_has_a_block() {
        let blocks = |text: &str| super::blocks(&Attention::parse(text).unwrap());
        assert_eq!(blocks("b=2,h=3,sq=65,sk=9,d=16,dv=129"), Some(2 * 3 * 2 * 2));
        assert_eq!(blocks("h=1,sq=1,sk=5000,d=64"), Some(1));
    }

    #[test]
    fn attention_in_double_precision_compiles_everywhere() {
        for &capability in compiling::chips() {
            for text in [
                "sq=8,d=8,dtype=f32",
                "sq=8,d=8,dtype=bf16,causal=true",
                "sq=8,d=8,dtype=f16,mask=add,lse=true,alibi=true,softcap=9",
                "sq=8,d=8,dtype=bf16,mask=bool,dropout=0.1",
                // Without a cap this one spills on sm_120, which makes it slower and not wrong.
                "sq=80,d=8,dtype=bf16,mask=tiles,tile=32,softcap=9,alibi=true,lse=true,dropout=0.1",
                "sq=8,sk=70,d=8,dtype=bf16,page=16,lengths=true,causal=true,corner=bottom",
                "sq=8,sk=70,d=8,dtype=f32,lengths=true,alibi=true",
                "b=3,sq=8,sk=70,d=8,dtype=f32,tq=20,tk=90,alibi=true,causal=true,corner=bottom,lse=true",
            ] {
                let p = Attention::parse(&format!("h=1,{text}")).unwrap();
                compiling::check_widths(&|width| source(&p, width), capability, text);
            }
        }
    }
}
