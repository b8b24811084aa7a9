//! Amx: brain floats through the tile registers of recent Intel server cores.
//!
//! Idea: one instruction multiplies 16×32 by 32×16 brain floats, eight times the work of a vector instruction on f32,
//! so nothing is widened; four tiles of sums meet two of A and two of B. Wins: bf16 from about 64³ on. Limits: bf16,
//! and a processor and system that grant AMX. From: Intel's optimisation manual, chapter 20.

use std::sync::Arc;

use half::bf16;
use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_core::roofline::Ceilings;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::Cpu;
use warplap_cpu::amx::Amx;
use warplap_cpu::pool::Pool;

use super::kernel::amx::{self, Cut};
use super::kernel::product;
use super::threads;
use crate::gemm::{Gemm, GemmProblem, Kind};

/// Tile registers.
pub(super) struct AmxTiles;

impl Variant<Gemm, Cpu> for AmxTiles {
    fn id(&self) -> &str {
        "amx"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &GemmProblem, _: &Cpu) -> Fit {
        if p.dtype != DType::Bf16 {
            return Fit::aside(format!("tiles multiply bf16, not {}", p.dtype));
        }
        match (Amx::get(), p.kind()) {
            (None, _) => Fit::aside("the processor or the system has no AMX"),
            (_, Kind::General) => Fit::HIGH,
            _ => Fit::LOW,
        }
    }

    fn space(&self, p: &GemmProblem, cpu: &Cpu) -> Space {
        Space::single()
            .axis(Axis::ints("kc", [1024, 512, 256]))
            .axis(Axis::ints("mc", [256, 128]))
            .axis(Axis::ints("nc", [1024, 2048]))
            .axis(threads::axis(p, cpu))
    }

    fn needs(&self, p: &GemmProblem, config: &Config) -> Needs {
        let size = |name| config.size(name).unwrap_or(1) as u64;
        let (columns, threads) = (p.n.min(size("nc")) + 32, size("threads"));
        let b = 4 * (size("kc") + 32) * columns;
        let a = 2 * threads * (size("mc") + 64) * (size("kc") + 32);
        Needs { threads, workspace: a + b + 4 * (p.m + 32) * columns, ..Needs::default() }
    }

    fn floor(&self, p: &GemmProblem, config: &Config, ceilings: &Ceilings) -> Option<f64> {
        threads::floor(p, config, ceilings)
    }

    fn build(&self, p: &GemmProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        let refused = |reason: String| Rejection::DoesNotBuild { reason };
        let amx = Amx::get().ok_or_else(|| refused("the processor or the system has no AMX".into()))?;
        if p.dtype != DType::Bf16 {
            return Err(refused(format!("tiles multiply bf16, not {}", p.dtype)));
        }
        let size = |name: &str| {
            config
                .size(name)
                .filter(|s| *s > 0)
                .ok_or_else(|| refused(format!("axis '{name}' is not set in '{config}'")))
        };
        let cut = Cut { mc: size("mc")?, kc: size("kc")?, nc: size("nc")?, threads: size("threads")? };
        Ok(Box::new(TileKernel { problem: *p, amx, cut, pool: cpu.pool().clone() }))
    }
}

struct TileKernel {
    problem: GemmProblem,
    amx: Amx,
    cut: Cut,
    pool: Arc<Pool>,
}

impl Kernel<Cpu> for TileKernel {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        let product = product::<bf16>(&self.problem, args)?;
        // SAFETY: the catalog hands out kernels that refuse other arguments than the signature's, so that the slices
        // hold what the problem spans.
        unsafe { amx::product(self.amx, &self.pool, self.cut, product) };
        Ok(())
    }
}
