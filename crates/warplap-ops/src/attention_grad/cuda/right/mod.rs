//! The right answer of attention's gradients, computed on the GPU in double precision. A problem and its inputs come in;
//! the gradients and their tolerances go out. Held to the host's answer by the example `cuda-right`; never raced.

use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::op::Op;
use warplap_core::oracle::{FarAnswer, Inputs, Oracle};
use warplap_cuda::{BLOCK, Buffer, Cuda, ELEMENT, PACKED, PHILOX, Source, dtype_code};

use crate::attention::AttentionProblem;
use crate::attention::cuda::plan::{below, mask_code, packed_fact, square_fact};
use crate::attention::cuda::right::score_limits;
use crate::attention_grad::reach::Reach;
use crate::attention_grad::{AttentionGrad, AttentionGradProblem, SLOTS, slot};
use crate::cuda::right::{addresses, launch, magnitudes, read};

/// Rows of one block, and columns it writes.
const ROWS: u64 = 64;
const COLUMNS: u64 = 128;

/// Blocks of the kernel that takes rows one by one: enough for any GPU.
const MANY: u64 = 2048;

/// What a launch of the kernel does.
#[derive(Clone, Copy)]
pub(super) enum Role {
    /// delta, and the magnitudes of rows.
    Rows,
    /// dQ.
    Queries,
    /// dK and dV.
    Keys,
}

/// Computes attention's gradients in double precision on a GPU.
pub(super) struct Right;

/// The kernel for a problem.
pub(super) fn source(p: &AttentionProblem, role: Role) -> Source {
    let facts = [
        ("DTYPE", dtype_code(p.dtype)),
        ("MASK", mask_code(p)),
        square_fact(p),
        ("DROPOUT", i64::from(p.dropout() > 0.0)),
        ("ALIBI", i64::from(p.alibi)),
        ("SOFTCAP", i64::from(p.softcap().is_some())),
        ("ROLE", role as i64),
        packed_fact(p),
    ];
    let headers = &[BLOCK, ELEMENT, PHILOX, PACKED];
    Source { entry: "right", text: include_str!("right.cu"), headers, defines: facts.to_vec() }
}

/// Blocks for a problem: parts of what is written, tiles of rows, heads.
fn blocks(p: &AttentionProblem, role: Role) -> Option<u64> {
    let (narrow, wide) = (p.d.div_ceil(COLUMNS), p.dv.div_ceil(COLUMNS));
    match role {
        Role::Rows => Some(MANY),
        Role::Queries => narrow.checked_mul(p.sq.div_ceil(ROWS))?.checked_mul(p.b * p.h),
        Role::Keys => (narrow + wide).checked_mul(p.sk.div_ceil(ROWS))?.checked_mul(p.b * p.hkv),
    }
}

impl Oracle<AttentionGrad, Cuda> for Right {
    fn answer(
        &self,
        problem: &AttentionGradProblem,
        inputs: &Inputs<'_, Cuda>,
        cuda: &Cuda,
    ) -> Result<Vec<FarAnswer<Cuda>>, Error> {
        let p = &problem.0;
        let input_addresses = addresses::<SLOTS>(&AttentionGrad::signature(problem), inputs)?;
        let room = |len: usize| cuda.alloc_queued(DType::F64, len);
        let delta = room(p.lse_len())?;
        let (dq, dk, dv) = (room(p.q_len())?, room(p.k_len())?, room(p.v_len())?);
        let met = magnitudes(cuda, Reach::PLACES as u64)?;
        let slots = [slot::Q, slot::K, slot::V, slot::MASK, slot::OUT, slot::LSE, slot::GRAD];
        let others = [slot::SLOPES, slot::SEED, slot::OFFSETS_Q, slot::OFFSETS_K];
        let (slots, others) = (slots.map(|slot| input_addresses[slot]), others.map(|slot| input_addresses[slot]));
        for role in [Role::Rows, Role::Queries, Role::Keys] {
            let first = if matches!(role, Role::Keys) { &dk } else { &dq };
            // SAFETY: inputs are those drawn for the problem, outputs were made for it.
            unsafe { run(cuda, p, role, slots, others, [&delta, first, &dv, &met].map(Buffer::address)) }?;
        }
        let tolerances = Reach::of(&read(cuda, &met)?).tolerances(p);
        let answers = [dq, dk, dv].into_iter().zip(tolerances);
        Ok(answers.map(|(values, tolerance)| FarAnswer { values, tolerance }).collect())
    }
}

/// Queues a launch over Q, K, V, the mask, O, the log-sum-exps and dO; slopes, seed and offsets; deltas, what is written,
/// and magnitudes.
///
/// # Safety
/// The addresses are of buffers that hold what the role reads and writes.
unsafe fn run(
    cuda: &Cuda,
    p: &AttentionProblem,
    role: Role,
    slots: [u64; 7],
    others: [u64; 4],
    written: [u64; 4],
) -> Result<(), Error> {
    let mut words = [&slots[..], &others, &written].concat();
    words.extend([p.b, p.h, p.group(), p.sq, p.sk, p.d, p.dv, f64::from(p.scale()).to_bits()]);
    words.extend(score_limits(p));
    words.extend(tensor_strides(p));
    words.extend([u64::from(below(p)), p.stretches()[1], p.pieces()[1]]);
    // SAFETY: the entry's parameters in order, by this function's own contract.
    unsafe { launch(cuda, &source(p, role), blocks(p, role), &words) }
}

/// Queues what comes before every gradient: deltas of all queries, and magnitudes of rows.
///
/// # Safety
/// The addresses are of Q, K, V, the mask, O, the log-sum-exps and dO of such a problem.
pub(crate) unsafe fn rows(
    cuda: &Cuda,
    p: &AttentionProblem,
    slots: [u64; 7],
    [delta, met]: [&Buffer; 2],
) -> Result<(), Error> {
    // SAFETY: what queries and keys write is not touched, and neither is what bends scores.
    unsafe { run(cuda, p, Role::Rows, slots, [0; 4], [delta.address(), 0, 0, met.address()]) }
}

/// How Q, K, V, O and the mask lie, as words.
pub(crate) fn tensor_strides(p: &AttentionProblem) -> Vec<u64> {
    let all = [p.q_strides(), p.k_strides(), p.v_strides(), p.o_strides(), p.mask_strides()];
    all.into_iter().flat_map(|strides| [strides.batch, strides.head, strides.row].map(|step| step as u64)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::compiling;

    #[test]
    fn every_tile_of_every_head_has_a_block() {
        let of = |text: &str| {
            let p = AttentionGrad::parse(text).unwrap().0;
            [Role::Queries, Role::Keys].map(|role| blocks(&p, role))
        };
        assert_eq!(of("b=2,h=4,hkv=2,sq=65,sk=9,d=16,dv=129"), [Some(2 * 8), Some(3 * 4)]);
        assert_eq!(of("h=1,sq=1,sk=5000,d=64"), [Some(1), Some(2 * 79)]);
    }

    #[test]
    fn gradients_in_double_precision_compile_everywhere() {
        for capability in [(8, 0), (9, 0), (12, 0)] {
            for text in [
                "sq=8,d=8,dtype=f32",
                "sq=8,d=8,dtype=bf16,causal=true",
                "sq=8,d=8,dtype=f16,mask=add,alibi=true,softcap=9",
                "sq=8,d=8,dtype=bf16,mask=bool,dropout=0.1",
                "sq=80,d=8,dtype=bf16,mask=tiles,tile=32",
                "b=3,sq=8,sk=20,d=8,dtype=f16,tq=11,tk=30,causal=true,corner=bottom",
            ] {
                let p = AttentionGrad::parse(&format!("h=1,{text}")).unwrap().0;
                for role in [Role::Rows, Role::Queries, Role::Keys] {
                    compiling::check_right(&source(&p, role), capability, text);
                }
            }
        }
    }
}
