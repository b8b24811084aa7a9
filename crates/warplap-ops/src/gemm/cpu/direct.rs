//! Direct: register tiles on B where it is.
//!
//! Idea: packing B costs as much as a few uses of it; a small product has no more than that, and its operands fit in
//! the second cache anyway. A is packed a few rows at a time, or read in place too. Wins: small and medium products,
//! up to about 256³, and wide ones of few rows. Limits: B row-major. From: LIBXSMM's small kernels.

use std::sync::Arc;

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::dtype::DType;
use warplap_core::problem::Problem;
use warplap_core::rejection::Rejection;
use warplap_core::roofline::Ceilings;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::pool::Pool;
use warplap_cpu::simd::{Element, Isa};
use warplap_cpu::{Cpu, Typed};

use super::kernel::in_place::{self, Cut};
use super::kernel::product;
use super::threads;
use crate::gemm::{Gemm, GemmProblem, Kind, Layout};
use crate::typed::for_dtype;

/// Register tiles on B in place.
pub(super) struct Direct;

impl Variant<Gemm, Cpu> for Direct {
    fn id(&self) -> &str {
        "direct"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &GemmProblem, _: &Cpu) -> Fit {
        if p.b == Layout::Col {
            return Fit::aside("it reads rows of B where they are, and B is column-major");
        }
        match p.kind() {
            Kind::General if p.work().flops <= 2.0 * 512f64.powi(3) => Fit::HIGH,
            Kind::General => Fit::MEDIUM,
            _ => Fit::LOW,
        }
    }

    fn space(&self, p: &GemmProblem, cpu: &Cpu) -> Space {
        let isas: Vec<&str> = Isa::available().into_iter().rev().map(Isa::name).collect();
        let packing: &[&str] = if p.dtype == DType::F32 { &["none", "a"] } else { &["a"] };
        Space::single()
            .axis(Axis::choices("isa", &isas))
            .axis(Axis::choices("tile", &["8x3", "6x2", "14x2", "4x2"]))
            .axis(Axis::choices("pack", packing))
            .axis(threads::axis(p, cpu))
            .rule(Rule::on("the isa has registers for the tile", &["isa", "tile"], |c| read_tile(c).is_some()))
            .rule(Rule::on("14 rows are only read packed", &["tile", "pack"], |c| {
                c.get("tile").is_some_and(|t| t.to_string() != "14x2")
                    || c.get("pack").is_some_and(|p| p.to_string() == "a")
            }))
    }

    fn needs(&self, p: &GemmProblem, config: &Config) -> Needs {
        let threads = config.size("threads").unwrap_or(1) as u64;
        Needs { threads, workspace: 4 * threads * 14 * p.k, ..Needs::default() }
    }

    fn floor(&self, p: &GemmProblem, config: &Config, ceilings: &Ceilings) -> Option<f64> {
        threads::floor(p, config, ceilings)
    }

    fn build(&self, p: &GemmProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        let refused = || Rejection::DoesNotBuild { reason: format!("no direct kernel for '{config}'") };
        let (isa, (mr, nv)) = read_tile(config).filter(|_| p.b == Layout::Row).ok_or_else(refused)?;
        let pack = config.get("pack").is_some_and(|v| v.to_string() == "a");
        if !pack && (p.dtype != DType::F32 || mr > 8) {
            return Err(refused());
        }
        let threads = config.size("threads").unwrap_or(1);
        Ok(Box::new(InPlace { problem: *p, cut: Cut { isa, mr, nv, pack, threads }, pool: cpu.pool().clone() }))
    }
}

/// The isa and tile (rows, vectors) of a config, if that isa should race it.
fn read_tile(config: &Config) -> Option<(Isa, (usize, usize))> {
    let isa = Isa::named(&config.get("isa")?.to_string())?;
    let tile = match (config.get("tile")?.to_string().as_str(), isa) {
        ("14x2", Isa::Avx512) => (14, 2),
        ("8x3", Isa::Avx512) => (8, 3),
        ("6x2", Isa::Avx2) => (6, 2),
        ("4x2", Isa::Portable) => (4, 2),
        _ => return None,
    };
    Some((isa, tile))
}

struct InPlace {
    problem: GemmProblem,
    cut: Cut,
    pool: Arc<Pool>,
}

impl Kernel<Cpu> for InPlace {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.dtype, T => launch::<T>(self, args))
    }
}

fn launch<T: Element + Typed>(kernel: &InPlace, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let product = product::<T>(&kernel.problem, args)?;
    // SAFETY: the catalog hands out kernels that refuse other arguments than the signature's, so that the slices hold
    // what the problem spans; `build` refused a column-major B.
    unsafe { in_place::product(&kernel.pool, kernel.cut, product) };
    Ok(())
}
