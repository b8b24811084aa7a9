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
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::Cpu;
use warplap_cpu::amx::Amx;
use warplap_cpu::pool::Pool;

use super::kernel::amx::{self, BY_PANEL, Cut};
use super::kernel::product;
use super::threads;
use crate::gemm::{Gemm, GemmProblem, Kind};

/// Bytes of A that the caches of a core hold while all of B walks past.
const NEAR: u64 = 4 << 20;

/// How loops over tiles can be cut where so many bytes stay while the other factor walks past.
pub(crate) fn cuts(a: u64) -> Space {
    let columns = [BY_PANEL as i64, 1024, 2048];
    Space::single()
        .axis(Axis::ints("kc", [1024, 512, 256]))
        .axis(Axis::ints("mc", [256, 128]))
        .axis(Axis::ints("nc", columns.into_iter().skip(usize::from(a > NEAR))))
        .rule(Rule::on("panels of B come without blocks", &["kc", "mc", "nc"], |c| {
            c.size("nc") != Some(BY_PANEL) || (c.size("kc"), c.size("mc")) == (Some(1024), Some(256))
        }))
}

/// The cut of a config.
pub(crate) fn cut(config: &Config) -> Result<Cut, Rejection> {
    let size = |name: &str| {
        let reason = || Rejection::DoesNotBuild { reason: format!("axis '{name}' is not set in '{config}'") };
        config.size(name).filter(|s| *s > 0).ok_or_else(reason)
    };
    Ok(Cut { mc: size("mc")?, kc: size("kc")?, nc: size("nc")?, threads: size("threads")? })
}

/// What a cut takes for factors of so many rows, columns and pairs of bytes along k.
pub(crate) fn needs([m, n, k]: [u64; 3], config: &Config) -> Needs {
    let size = |name| config.size(name).unwrap_or(1) as u64;
    let (columns, threads) = (n.min(size("nc")) + 32, size("threads"));
    let workspace = if size("nc") == BY_PANEL as u64 {
        2 * (m + 32) * (k + 32) + threads * (64 * (k + 32) + 4096)
    } else {
        let (a, b) = (2 * threads * (size("mc") + 64) * (size("kc") + 32), 4 * (size("kc") + 32) * columns);
        a + b + 4 * (m + 32) * columns
    };
    Needs { threads, workspace, ..Needs::default() }
}

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
        cuts(2 * p.m * p.k).axis(threads::axis(p, cpu))
    }

    fn needs(&self, p: &GemmProblem, config: &Config) -> Needs {
        needs([p.m, p.n, p.k], config)
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
        Ok(Box::new(TileKernel { problem: *p, amx, cut: cut(config)?, pool: cpu.pool().clone() }))
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
