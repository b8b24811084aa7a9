//! The right answer of the gradient of attention's mask, computed on the GPU in double precision. A problem and its inputs
//! come in; the gradient and its tolerance go out. Held to the host's answer by the example `cuda-right`; never raced.

use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::op::Op;
use warplap_core::oracle::{FarAnswer, Inputs, Oracle};
use warplap_cuda::{Cuda, ELEMENT, PHILOX, Source, dtype_code};

use crate::attention::AttentionProblem;
use crate::attention::cuda::plan::below;
use crate::attention::cuda::right::score_limits;
use crate::attention_grad::cuda::right::{rows, tensor_strides};
use crate::attention_grad::reach::Reach;
use crate::attention_mask_grad::{AttentionMaskGrad, AttentionMaskGradProblem, SLOTS, sharing, slot};
use crate::cuda::right::{addresses, launch, magnitudes, read};

/// Queries and keys of one block.
const ROWS: u64 = 64;
const OTHERS: u64 = 32;

/// Computes the gradient of a mask in double precision on a GPU.
pub(super) struct Right;

/// The kernel for a problem.
fn source(p: &AttentionProblem) -> Source {
    let facts = [
        ("DTYPE", dtype_code(p.dtype)),
        ("DROPOUT", i64::from(p.dropout() > 0.0)),
        ("ALIBI", i64::from(p.alibi)),
        ("SOFTCAP", i64::from(p.softcap().is_some())),
    ];
    let headers = &[ELEMENT, PHILOX];
    Source { entry: "right", text: include_str!("right.cu"), headers, defines: facts.to_vec() }
}

/// Blocks for a problem: tiles of every mask.
fn blocks(p: &AttentionProblem) -> Option<u64> {
    let masks = p.masks().iter().product::<u64>();
    p.sq.div_ceil(ROWS).checked_mul(p.sk.div_ceil(OTHERS))?.checked_mul(masks)
}

impl Oracle<AttentionMaskGrad, Cuda> for Right {
    fn answer(
        &self,
        problem: &AttentionMaskGradProblem,
        inputs: &Inputs<'_, Cuda>,
        cuda: &Cuda,
    ) -> Result<Vec<FarAnswer<Cuda>>, Error> {
        let p = &problem.0;
        let input_addresses = addresses::<SLOTS>(&AttentionMaskGrad::signature(problem), inputs)?;
        let (delta, values) =
            (cuda.alloc_queued(DType::F64, p.lse_len())?, cuda.alloc_queued(DType::F64, p.mask_len())?);
        let (met, most) = (magnitudes(cuda, Reach::PLACES as u64)?, magnitudes(cuda, 1)?);
        let slots =
            [slot::Q, slot::K, slot::V, slot::MASK, slot::OUT, slot::LSE, slot::GRAD].map(|slot| input_addresses[slot]);
        // SAFETY: inputs are those drawn for the problem.
        unsafe { rows(cuda, p, slots, [&delta, &met]) }?;
        let read_first = [slot::Q, slot::K, slot::V, slot::MASK, slot::LSE, slot::GRAD, slot::SLOPES, slot::SEED];
        let mut words = read_first.map(|slot| input_addresses[slot]).to_vec();
        words.extend([&delta, &values, &most].map(|buffer| buffer.address()));
        words.extend([p.h, p.group(), p.sq, p.sk, p.d, p.dv, f64::from(p.scale()).to_bits()]);
        words.extend(score_limits(p));
        words.extend(tensor_strides(p));
        words.extend([u64::from(below(p)), p.masks()[1]]);
        words.extend(sharing(p));
        // SAFETY: the entry's parameters in order; inputs are those drawn for the problem, outputs were made for it.
        unsafe { launch(cuda, &source(p), blocks(p), &words) }?;
        let reach = Reach::of(&read(cuda, &met)?);
        let tolerance = reach.of_scores(p, sharing(p).iter().product(), read(cuda, &most)?[0]);
        Ok(vec![FarAnswer { values, tolerance }])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::compiling;

    #[test]
    fn every_tile_of_every_mask_has_a_block() {
        let of = |text: &str| blocks(&AttentionMaskGrad::parse(&format!("{text},mask=add")).unwrap().0);
        assert_eq!(of("b=2,h=4,hkv=2,sq=65,sk=33,d=16,over=heads"), Some(4 * 2 * 2));
        assert_eq!(of("b=2,h=4,sq=64,sk=32,d=16"), Some(1));
    }

    #[test]
    fn the_gradient_in_double_precision_compiles_everywhere() {
        for capability in [(8, 0), (9, 0), (12, 0)] {
            for text in ["dtype=f32", "dtype=bf16,causal=true", "dtype=f16,alibi=true,softcap=9,dropout=0.1"] {
                let p = AttentionMaskGrad::parse(&format!("h=1,sq=8,d=8,mask=add,{text}")).unwrap().0;
                compiling::check_right(&source(&p), capability, text);
            }
        }
    }
}
