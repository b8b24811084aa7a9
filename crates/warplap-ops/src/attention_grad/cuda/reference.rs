//! The reference: one block a row that is written, f32 throughout. Twin of `reference.cu`.
//!
//! Idea: the plainest kernel there is. Wins: never by design. Limits: none but shared memory for a row of each tensor;
//! it fits everything and is the fallback.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, ELEMENT, PACKED, PHILOX, Source, dtype_code};

use super::plan::all_strides;
use crate::attention::cuda::plan::{below, floats, mask_code, mask_strides, packed_fact, sight, square_fact, totals};
use crate::attention_grad::{AttentionGradProblem, SLOTS};
use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Plan, int};

/// One block a row.
pub(super) struct Reference;

/// Threads of a block, and rows it meets together.
const MET: u64 = 128;

impl CudaKernelSpec<AttentionGradProblem> for Reference {
    fn id(&self) -> &'static str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &AttentionGradProblem, _: &Chip) -> Fit {
        Fit::LOW
    }

    fn space(&self, _: &AttentionGradProblem, _: &Chip) -> Space {
        Space::single()
    }

    fn plan(&self, problem: &AttentionGradProblem, _: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let p = &problem.0;
        let over = |reason: &str| Rejection::OverLimits { reason: reason.into() };
        let shared = 4 * (2 * (p.d + p.dv) + 2 * MET);
        if shared > chip.shared_memory {
            return Err(over("a row of each tensor does not fit shared memory"));
        }
        let rows = p.b * (p.h * p.sq + p.hkv * p.sk);
        if rows.max(p.sk).max(p.sq) >= 1 << 31 {
            return Err(over("the sizes do not fit 31 bits"));
        }
        let defines = vec![
            ("DTYPE", dtype_code(p.dtype)),
            ("MASK", mask_code(p)),
            square_fact(p),
            ("ALIBI", i64::from(p.alibi)),
            ("SOFTCAP", i64::from(p.softcap().is_some())),
            ("DROPOUT", i64::from(p.dropout() > 0.0)),
            packed_fact(p),
        ];
        let mut arguments: Vec<Argument> = (0..SLOTS).map(Argument::Pointer).collect();
        arguments.extend([p.b, p.h, p.group(), p.sq, p.sk, p.d, p.dv].map(int));
        arguments.extend(floats(p));
        arguments.extend(sight(p));
        arguments.extend(all_strides(p));
        arguments.extend(mask_strides(p));
        arguments.push(Argument::Int(below(p) as i32));
        arguments.extend(totals(p));
        let text = include_str!("reference.cu");
        Ok(Plan {
            source: Source { entry: self.id(), text, headers: &[ELEMENT, PHILOX, PACKED], defines },
            threads: MET as u32,
            shared,
            grid: Grid::Blocks(rows),
            arguments,
            overlap: false,
        })
    }
}
