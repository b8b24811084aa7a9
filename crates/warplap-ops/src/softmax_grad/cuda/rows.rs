//! Rows in registers: a warp or a block a row. Twin of `rows.cu`, which says how.
//!
//! Wins: everything. Limits: rows that registers cannot hold are read twice.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, ELEMENT, ROWS, Source};

use super::plan::{arguments, facts};
use crate::cuda::plan::{CudaKernelSpec, Grid, Plan};
use crate::cuda::rows;
use crate::softmax_grad::SoftmaxGradProblem;

/// A warp or a block a row.
pub(super) struct Rows;

/// The rows of a problem.
fn of(p: &SoftmaxGradProblem) -> rows::Rows {
    rows::Rows { n: p.0.n, dtype: p.0.dtype, held: 2 }
}

impl CudaKernelSpec<SoftmaxGradProblem> for Rows {
    fn id(&self) -> &'static str {
        "rows"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &SoftmaxGradProblem, chip: &Chip) -> Fit {
        if chip.capability < (8, 0) { Fit::aside("needs a chip from sm_80 on") } else { Fit::HIGH }
    }

    fn space(&self, p: &SoftmaxGradProblem, _: &Chip) -> Space {
        of(p).space()
    }

    fn plan(&self, p: &SoftmaxGradProblem, c: &Config, _: &Chip) -> Result<Plan, Rejection> {
        let cut = of(p).cut(c)?;
        let defines = facts(p).into_iter().chain(cut.defines).collect();
        let text = include_str!("rows.cu");
        Ok(Plan {
            source: Source { entry: self.id(), text, headers: &[ROWS, ELEMENT], defines },
            threads: cut.threads,
            shared: 0,
            grid: Grid::Blocks(p.0.rows.div_ceil(cut.together)),
            arguments: arguments(p),
            overlap: false,
        })
    }
}
