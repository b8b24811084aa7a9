//! The reference: one thread an element. Twin of `reference.cu`.
//!
//! Idea: the plainest kernel there is. Wins: never by design. Limits: none; it fits everything and is the fallback.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::Fit;
use warplap_cuda::{Chip, Source};

use super::plan::{HEADERS, facts, rest};
use crate::cuda::plan::{Argument, CudaKernelSpec, Grid, Plan};
use crate::qgemm::{QgemmProblem, slot};

/// One thread an element.
pub(super) struct Reference;

impl CudaKernelSpec<QgemmProblem> for Reference {
    fn id(&self) -> &'static str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &QgemmProblem, _: &Chip) -> Fit {
        Fit::LOW
    }

    fn space(&self, _: &QgemmProblem, _: &Chip) -> Space {
        Space::single()
    }

    fn plan(&self, p: &QgemmProblem, _: &Config, _: &Chip) -> Result<Plan, Rejection> {
        let mut arguments = [slot::A, slot::B, slot::C].map(Argument::Pointer).to_vec();
        arguments.extend(rest(p));
        Ok(Plan {
            source: Source {
                entry: self.id(),
                text: include_str!("reference.cu"),
                headers: &HEADERS,
                defines: facts(p),
            },
            threads: 256,
            shared: 0,
            grid: Grid::Blocks((p.m * p.n).div_ceil(256).max(1)),
            arguments,
            overlap: false,
        })
    }
}
