//! Packed: A and B are copied into panels that a register tile reads from front to back.
//!
//! Idea: cut k so that a panel of B stays in the first cache and a block of A in the second; pack both once per
//! block, widened to f32, so that half types run at f32's speed. Wins: everything whose arithmetic dwarfs its
//! memory, from about 200³ on, in any layout. Limits: none. From: Goto and van de Geijn, "Anatomy of high-performance
//! matrix multiplication" (2008), and BLIS.

use std::sync::Arc;

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_core::roofline::Ceilings;
use warplap_core::space::{Axis, Config, Rule, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cpu::pool::Pool;
use warplap_cpu::simd::{Element, Isa};
use warplap_cpu::{Cpu, Typed};

use super::kernel::blocked::{self, Blocking, Keep, MC};
use super::kernel::product;
use super::threads;
use crate::gemm::{Gemm, GemmProblem, Kind};
use crate::typed::for_dtype;

/// Packed panels and register tiles.
pub(super) struct Packed;

impl Variant<Gemm, Cpu> for Packed {
    fn id(&self) -> &str {
        "packed"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, p: &GemmProblem, _: &Cpu) -> Fit {
        match p.kind() {
            Kind::General if p.m.min(p.n) >= 16 => Fit::HIGH,
            Kind::General => Fit::MEDIUM,
            _ => Fit::LOW,
        }
    }

    fn space(&self, p: &GemmProblem, cpu: &Cpu) -> Space {
        let tiles: Vec<String> = Isa::available()
            .into_iter()
            .rev()
            .flat_map(|isa| Blocking::tiles(isa).iter().map(move |t| name(isa, *t)))
            .collect();
        let isas: Vec<&str> = Isa::available().into_iter().rev().map(Isa::name).collect();
        Space::single()
            .axis(Axis::choices("isa", &isas))
            .axis(Axis::choices("tile", &tiles.iter().map(String::as_str).collect::<Vec<_>>()))
            .axis(Axis::ints("kc", if p.k <= 512 { [512, 256] } else { [256, 512] }))
            .axis(Axis::choices("keep", if p.dtype == DType::F32 { &["a", "b", "raw"] } else { &["a", "b"] }))
            .axis(threads::axis(p, cpu))
            .rule(Rule::on(
                "A stays raw only for narrow tiles, B near only for the best isa",
                &["isa", "tile", "keep"],
                |c| {
                    let Some((isa, (rows, _))) = read_tile(c) else {
                        return false;
                    };
                    match read_keep(c) {
                        Some(Keep::A) => true,
                        Some(Keep::B) => isa == Isa::best(),
                        Some(Keep::Raw) => rows <= 8 && isa != Isa::Portable,
                        None => false,
                    }
                },
            ))
            .rule(Rule::on("the tile is one of the isa's", &["isa", "tile"], |c| read_tile(c).is_some()))
    }

    fn needs(&self, p: &GemmProblem, config: &Config) -> Needs {
        let threads = config.size("threads").unwrap_or(1) as u64;
        let (kc, mc) = (config.size("kc").unwrap_or(256) as u64, MC as u64);
        let b = 2 * kc.min(p.k) * p.n.min(2048).next_multiple_of(64);
        let sums = if p.dtype.bytes() < 4 { p.m * p.n.min(2048).next_multiple_of(64) } else { 0 };
        Needs { threads, workspace: 4 * (b + sums + threads * (mc + 64) * kc), ..Needs::default() }
    }

    fn floor(&self, p: &GemmProblem, config: &Config, ceilings: &Ceilings) -> Option<f64> {
        threads::floor(p, config, ceilings)
    }

    fn build(&self, p: &GemmProblem, config: &Config, cpu: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        let refused = || Rejection::DoesNotBuild { reason: format!("no packed kernel for '{config}'") };
        let (isa, (mr, nv)) = read_tile(config).ok_or_else(refused)?;
        let size = |name| config.size(name).filter(|s| *s > 0).ok_or_else(refused);
        let keep = read_keep(config).ok_or_else(refused)?;
        if keep == Keep::Raw && (mr > 8 || p.dtype != DType::F32) {
            return Err(refused());
        }
        let kc = size("kc")?;
        let blocking = Blocking { isa, mr, nv, mc: MC, kc, nc: keep.columns(kc), keep, threads: size("threads")? };
        Ok(Box::new(Panels { problem: *p, blocking, pool: cpu.pool().clone() }))
    }
}

/// What stays near.
fn read_keep(config: &Config) -> Option<Keep> {
    match config.get("keep")?.to_string().as_str() {
        "a" => Some(Keep::A),
        "b" => Some(Keep::B),
        "raw" => Some(Keep::Raw),
        _ => None,
    }
}

/// A tile by rows and columns.
fn name(isa: Isa, (rows, vectors): (usize, usize)) -> String {
    format!("{rows}x{}", vectors * isa.lanes())
}

/// The isa and tile of a config, if the isa has such a tile.
fn read_tile(config: &Config) -> Option<(Isa, (usize, usize))> {
    let isa = Isa::named(&config.get("isa")?.to_string())?;
    let wanted = config.get("tile")?.to_string();
    Blocking::tiles(isa).iter().find(|t| name(isa, **t) == wanted).map(|t| (isa, *t))
}

struct Panels {
    problem: GemmProblem,
    blocking: Blocking,
    pool: Arc<Pool>,
}

impl Kernel<Cpu> for Panels {
    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        for_dtype!(self.problem.dtype, T => launch::<T>(self, args))
    }
}

fn launch<T: Element + Typed>(kernel: &Panels, args: &mut [Arg<'_, Cpu>]) -> Result<(), Rejection> {
    let product = product::<T>(&kernel.problem, args)?;
    // SAFETY: the catalog hands out kernels that refuse other arguments than the signature's, so that the slices hold
    // what the problem spans; c is borrowed mutably for the launch.
    unsafe { blocked::product(&kernel.pool, kernel.blocking, product) };
    Ok(())
}
