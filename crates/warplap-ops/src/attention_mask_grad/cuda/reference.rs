//! The reference: one thread an entry of a mask, f32 throughout. Twin of `reference.cu`.
//!
//! Idea: the plainest kernel there is. Wins: never by design. Limits: none but shared memory for a row of each tensor;
//! it fits everything and is the fallback.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, ELEMENT, PHILOX, Source, dtype_code};

use super::plan::shares;
use crate::attention::cuda::plan::{below, floats, mask_strides, sight};
use crate::attention_grad::cuda::plan::all_strides;
use crate::attention_mask_grad::{AttentionMaskGradProblem, SLOTS};
use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Plan, int};

/// One thread an entry.
pub(super) struct Reference;

/// Threads of a block: keys of a row.
const MET: u64 = 128;

impl CudaKernelSpec<AttentionMaskGradProblem> for Reference {
    fn id(&self) -> &'static str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &AttentionMaskGradProblem, _: &Chip) -> Fit {
        Fit::LOW
    }

    fn space(&self, _: &AttentionMaskGradProblem, _: &Chip) -> Space {
        Space::single()
    }

    fn plan(&self, problem: &AttentionMaskGradProblem, _: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let p = &problem.0;
        let over = |reason: &str| Rejection::OverLimits { reason: reason.into() };
        let shared = 4 * (p.d + 2 * p.dv);
        if shared > chip.shared_memory {
            return Err(over("a row of each tensor does not fit shared memory"));
        }
        let blocks = p.masks().iter().product::<u64>() * p.sq * p.sk.div_ceil(MET);
        if blocks.max(p.sk).max(p.b * p.h) >= 1 << 31 {
            return Err(over("the sizes do not fit 31 bits"));
        }
        let defines = vec![
            ("DTYPE", dtype_code(p.dtype)),
            ("ALIBI", i64::from(p.alibi)),
            ("SOFTCAP", i64::from(p.softcap().is_some())),
            ("DROPOUT", i64::from(p.dropout() > 0.0)),
        ];
        let mut arguments: Vec<Argument> = (0..SLOTS).map(Argument::Pointer).collect();
        arguments.extend([p.h, p.group(), p.sq, p.sk, p.d, p.dv].map(int));
        arguments.extend(floats(p));
        arguments.extend(sight(p));
        arguments.extend(all_strides(p));
        arguments.extend(mask_strides(p));
        arguments.push(Argument::Int(below(p) as i32));
        arguments.extend(shares(p));
        let text = include_str!("reference.cu");
        Ok(Plan {
            source: Source { entry: self.id(), text, headers: &[ELEMENT, PHILOX], defines },
            threads: MET as u32,
            shared,
            grid: Grid::Blocks(blocks),
            arguments,
            overlap: false,
        })
    }
}
