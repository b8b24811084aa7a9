//! Skinny: a few vectors (2 to 14) by a matrix, either side, either layout.
//!
//! Idea: with few uses of each element packing the matrix never pays; all vectors meet a line while it is in
//! registers, so that the matrix is read once. Wins: m or n up to 14 with the other two sides large, above all where
//! lines run along k. Limits: one side at most 14. From: decoding steps of language models, where m is the batch.

use std::sync::Arc;

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::roofline::Ceilings;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::pool::Pool;
use warplap_cpu::simd::{Element, Isa};
use warplap_cpu::{Cpu, Typed};

use super::kernel::product;
use super::kernel::thin::{self, Cut};
use super::threads;
use crate::gemm::{Gemm, GemmProblem, Kind};
use crate::typed::for_dtype;

/// A matrix by a few vectors.
pub(super) struct Skinny;

impl Variant<Gemm, Cpu> for Skinny {
    fn id(&self) -> &str {
        "skinny"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &GemmProblem, _: &Cpu) -> Fit {
        match (p.kind(), p.m.min(p.n) as usize) {
            (Kind::General, short) if short <= thin::MOST => Fit::HIGH,
            (Kind::General, _) => Fit::aside(format!("both sides are longer than {}", thin::MOST)),
            _ => Fit::aside("one side is a vector: gemv is the same and simpler"),
        }
    }

    fn space(&self, p: &GemmProblem, cpu: &Cpu) -> Space {
        let isas: Vec<&str> = Isa::available().into_iter().rev().map(Isa::name).collect();
        Space::single()
            .axis(Axis::choices("isa", &isas))
            .axis(Axis::ints("parts", [1, cpu.threads() as i64]))
            .axis(threads::stream_axis(p, cpu))
    }

    fn needs(&self, p: &GemmProblem, config: &Config) -> Needs {
        let parts = config.size("parts").unwrap_or(1) as u64;
        let short = p.m.min(p.n) + 1;
        let workspace = 4 * (short * p.k + parts * p.m * p.n);
        Needs { threads: config.size("threads").unwrap_or(1) as u64, workspace, ..Needs::default() }
    }

    fn floor(&self, p: &GemmProblem, config: &Config, ceilings: &Ceilings) -> Option<f64> {
        threads::floor(p, config, ceilings)
    }

    fn build(&self, p: &GemmProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        let refused = || Rejection::DoesNotBuild { reason: format!("no skinny kernel for '{config}'") };
        let isa = config.get("isa").and_then(|v| Isa::named(&v.to_string())).ok_or_else(refused)?;
        if p.m.min(p.n) > thin::MOST as u64 {
            return Err(refused());
        }
        let size = |name, usual| config.size(name).unwrap_or(usual);
        let cut = Cut { isa, nv: size("width", 8), parts: size("parts", 1), threads: size("threads", 1) };
        Ok(Box::new(Stream { problem: *p, cut, pool: cpu.pool().clone() }))
    }
}

struct Stream {
    problem: GemmProblem,
    cut: Cut,
    pool: Arc<Pool>,
}

impl Kernel<Cpu> for Stream {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.dtype, T => launch::<T>(self, args))
    }
}

fn launch<T: Element + Typed>(kernel: &Stream, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let product = product::<T>(&kernel.problem, args)?;
    // SAFETY: the catalog hands out kernels that refuse other arguments than the signature's, so that the slices hold
    // what the problem spans; `build` refused two long sides.
    unsafe { thin::product(&kernel.pool, kernel.cut, product) };
    Ok(())
}
