//! Thin: experts of few rows stream their matrices, each read once from where it lies.
//!
//! Idea: with few uses of each weight packing never pays; all rows of an expert meet a line of its matrix while it is
//! in registers. Pieces of columns are dealt out to threads by the bytes they read. Experts of more rows than stay in
//! registers take packed tiles in the same go. Wins: decoding, where an expert has 1 to 14 rows and memory is all the
//! work. Limits: none, but where many rows are the rule it is `tiles`. From: `gemm`'s `skinny`.

use std::sync::Arc;

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::pool::Pool;
use warplap_cpu::simd::{Element, Isa};
use warplap_cpu::{Cpu, Typed};

use super::call::Call;
use super::pieces::{isa, isas, pieces, threads};
use crate::gemm::cpu::kernel::blocked::{self, Blocking};
use crate::gemm::cpu::kernel::thin::{self, Cut};
use crate::grouped::{Grouped, GroupedProblem};
use crate::typed::for_dtype;

/// Streamed matrices.
pub(super) struct Thin;

/// Rows of packed tiles that take about as long as reading a matrix once.
const FREE: usize = 8;

fn has_thin(p: &GroupedProblem) -> bool {
    p.counts().iter().any(|rows| (1..=thin::MOST as u64).contains(rows))
}

impl Variant<Grouped, Cpu> for Thin {
    fn id(&self) -> &str {
        "thin"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &GroupedProblem, _: &Cpu) -> Fit {
        match has_thin(p) {
            true => Fit::HIGH,
            false => Fit::aside(format!("no expert has from 1 to {} rows", thin::MOST)),
        }
    }

    fn space(&self, p: &GroupedProblem, cpu: &Cpu) -> Space {
        Space::single().axis(isas()).axis(threads(p, cpu))
    }

    fn needs(&self, p: &GroupedProblem, config: &Config) -> Needs {
        let threads = config.size("threads").unwrap_or(1) as u64;
        // Rows as f32 and their sums; panels and sums of packed tiles.
        let each = (thin::MOST as u64 + 1) * (p.k + p.n) + 2 * 256 * p.n.min(2048) + 512 * 256;
        Needs { threads, workspace: 4 * threads * each, ..Needs::default() }
    }

    fn build(&self, p: &GroupedProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        let refused = || Rejection::DoesNotBuild { reason: format!("no thin kernel for '{config}'") };
        let isa = isa(config).ok_or_else(refused)?;
        let threads = config.size("threads").unwrap_or(1).max(1);
        Ok(Box::new(Built { problem: *p, isa, threads, pool: cpu.pool().clone() }))
    }
}

struct Built {
    problem: GroupedProblem,
    isa: Isa,
    threads: usize,
    pool: Arc<Pool>,
}

impl Kernel<Cpu> for Built {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.dtype, T => launch::<T>(self, args))
    }
}

fn launch<T: Element + Typed>(kernel: &Built, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let call = Call::<T>::of(&kernel.problem, args)?;
    let cost = |rows: usize| rows.max(FREE);
    let pieces = pieces(&call.groups, kernel.problem.n as usize, kernel.threads, cost);
    let (cut, blocking) = (Cut { isa: kernel.isa, nv: 8, parts: 1, threads: 1 }, Blocking::usual(kernel.isa, 1));
    // SAFETY: pieces are of the problem's experts, rows and columns, and no two share an element of y; a thin product
    // has a short side.
    kernel.pool.each(kernel.threads, pieces.len(), |i| unsafe {
        let piece = pieces[i].clone();
        let is_thin = piece.rows.len() <= thin::MOST;
        let product = call.product(piece.expert, piece.rows, piece.columns);
        if is_thin {
            thin::product(&kernel.pool, cut, product);
        } else {
            blocked::product(&kernel.pool, blocking, product);
        }
    });
    Ok(())
}
