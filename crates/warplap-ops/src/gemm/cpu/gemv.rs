//! Gemv: one vector by a matrix, either side, either layout.
//!
//! Idea: such a product is as fast as the matrix can be read, so it is read once, in place, by all threads: dot
//! products where its lines run along k, sums of multiples where they run across. Wins: m = 1 or n = 1. Limits: only
//! those. From: BLAS level 2.

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

/// A matrix by one vector.
pub(super) struct Gemv;

impl Variant<Gemm, Cpu> for Gemv {
    fn id(&self) -> &str {
        "gemv"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &GemmProblem, _: &Cpu) -> Fit {
        match p.kind() {
            Kind::General => Fit::aside("neither side is a vector"),
            _ => Fit::HIGH,
        }
    }

    fn space(&self, p: &GemmProblem, cpu: &Cpu) -> Space {
        let isas: Vec<&str> = Isa::available().into_iter().rev().map(Isa::name).collect();
        Space::single()
            .axis(Axis::choices("isa", &isas))
            .axis(Axis::ints("width", [8, 4]))
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
        let refused = || Rejection::DoesNotBuild { reason: format!("no gemv kernel for '{config}'") };
        let isa = config.get("isa").and_then(|v| Isa::named(&v.to_string())).ok_or_else(refused)?;
        if p.m.min(p.n) > 1 {
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
