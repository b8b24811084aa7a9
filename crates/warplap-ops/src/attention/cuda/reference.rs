//! The reference: one block a query row, f32 throughout, one pass over the keys. Twin of `reference.cu`.
//!
//! Idea: the plainest kernel there is. Wins: never by design. Limits: none but shared memory for one query and one row
//! of output; it fits everything and is the fallback.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, ELEMENT, PACKED, PHILOX, Source, dtype_code};

use super::plan::{
    all_strides, below, floats, length_fact, mask_code, packed_fact, page_fact, sight, square_fact, totals,
};
use crate::attention::{AttentionProblem, SLOTS};
use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Plan, int};

/// One block a query row.
pub(super) struct Reference;

/// Threads of a block, and keys it looks at together.
const KEYS: u64 = 128;

impl CudaKernelSpec<AttentionProblem> for Reference {
    fn id(&self) -> &'static str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &AttentionProblem, _: &Chip) -> Fit {
        Fit::LOW
    }

    fn space(&self, _: &AttentionProblem, _: &Chip) -> Space {
        Space::single()
    }

    fn plan(&self, p: &AttentionProblem, _: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let over = |reason: &str| Rejection::OverLimits { reason: reason.into() };
        let shared = 4 * (4 + KEYS + p.d + p.dv);
        if shared > chip.shared_memory {
            return Err(over("one query and one row of output do not fit shared memory"));
        }
        let rows = p.b * p.h * p.sq;
        if rows.max(p.sk).max(p.d).max(p.dv) >= 1 << 31 {
            return Err(over("the sizes do not fit 31 bits"));
        }
        let defines = vec![
            ("DTYPE", dtype_code(p.dtype)),
            ("MASK", mask_code(p)),
            square_fact(p),
            ("LSE", i64::from(p.lse)),
            ("ALIBI", i64::from(p.alibi)),
            ("SOFTCAP", i64::from(p.softcap().is_some())),
            ("DROPOUT", i64::from(p.dropout() > 0.0)),
            page_fact(p),
            length_fact(p),
            packed_fact(p),
        ];
        let mut arguments: Vec<Argument> = (0..SLOTS).map(Argument::Pointer).collect();
        arguments.extend([p.h, p.group(), p.sq, p.sk, p.d, p.dv].map(int));
        arguments.extend(floats(p));
        arguments.extend(sight(p));
        arguments.extend(all_strides(p));
        arguments.extend([Argument::Int(below(p) as i32), int(p.pieces()[0])]);
        arguments.extend(totals(p));
        let text = include_str!("reference.cu");
        Ok(Plan {
            source: Source { entry: self.id(), text, headers: &[ELEMENT, PHILOX, PACKED], defines },
            threads: KEYS as u32,
            shared,
            grid: Grid::Blocks(rows),
            arguments,
            overlap: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warplap_core::dtype::DType;

    #[test]
    fn rows_of_any_length_get_the_shared_memory_they_need_or_are_refused() {
        let config = Space::single().default_config().unwrap();
        let plan = |sq, d| Reference.plan(&AttentionProblem::new(2, 4, sq, 20, d, DType::F32), &config, &Chip::h200());
        let plain = plan(10, 64).unwrap();
        assert_eq!((plain.grid, plain.shared), (Grid::Blocks(80), 4 * (4 + 128 + 128)));
        assert!(matches!(plan(1, 1 << 16), Err(Rejection::OverLimits { .. })));
        assert!(matches!(plan(1 << 31, 8), Err(Rejection::OverLimits { .. })));
    }
}
