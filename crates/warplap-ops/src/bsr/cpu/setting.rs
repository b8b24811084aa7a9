//! The axes that the blocked variants share, and what a Config says about them.

use std::sync::Arc;

use warplap_core::dtype::DType;
use warplap_core::problem::Problem;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Rule, Space, Value};
use warplap_cpu::pool::Pool;
use warplap_cpu::simd::{Element, Isa};
use warplap_cpu::{Cpu, Typed};

use super::scratch;
use super::tile::{Tile, Widen};
use crate::bsr::BsrProblem;
use crate::gemm::Layout;

/// Useful work above which one thread of several is not worth trying.
const PARALLEL_FLOPS: f64 = 5e7;

/// Threads: all, and one where the work is small enough that waking others may not pay.
pub(super) fn threads(p: &BsrProblem, cpu: &Cpu) -> Axis {
    let alone = (p.work().flops < PARALLEL_FLOPS).then_some(1);
    Axis::ints("threads", [cpu.threads() as i64].into_iter().chain(alone))
}

/// Instruction sets of this machine, the best first.
pub(super) fn isas() -> Axis {
    let names: Vec<&str> = Isa::available().into_iter().rev().map(Isa::name).collect();
    Axis::choices("isa", &names)
}

/// Tile, instruction set, threads; `first` is the tile to begin with where B is not too narrow for it.
pub(super) fn space(p: &BsrProblem, cpu: &Cpu, first: &str) -> Space {
    let first = if p.n <= 32 { "8x2" } else { first };
    let mut tiles = Tile::names();
    tiles.sort_by_key(|name| *name != first);
    let suits = |c: &Config| matches!((tile(c), isa(c)), (Some(tile), Some(isa)) if tile.suits(isa));
    Space::single().axis(Axis::choices("tile", &tiles)).axis(isas()).axis(threads(p, cpu)).rule(Rule::on(
        "the tile fills the registers of the instruction set",
        &["tile", "isa"],
        suits,
    ))
}

fn text<'a>(config: &'a Config, axis: &str) -> Option<&'a str> {
    match config.get(axis) {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    }
}

fn tile(config: &Config) -> Option<Tile> {
    text(config, "tile").and_then(Tile::named)
}

/// The instruction set a Config names.
pub(super) fn isa(config: &Config) -> Option<Isa> {
    text(config, "isa").and_then(Isa::named)
}

/// What a Config says, with the threads to do it.
pub(super) struct Setting {
    pub(super) tile: Tile,
    pub(super) isa: Isa,
    pub(super) threads: usize,
    pub(super) pool: Arc<Pool>,
}

impl Setting {
    /// Reads a Config of [`space`].
    pub(super) fn read(config: &Config, cpu: &Cpu) -> Result<Self, Rejection> {
        let missing = |axis: &str| Rejection::DoesNotBuild {
            reason: format!("axis '{axis}' is not set to a value of this machine"),
        };
        let isa = isa(config).ok_or_else(|| missing("isa"))?;
        let tile = tile(config).ok_or_else(|| missing("tile"))?;
        Ok(Setting { tile, isa, threads: config.size("threads").unwrap_or(1), pool: cpu.pool().clone() })
    }
}

/// Why a problem is nothing for lanes of f32, if so.
pub(super) fn no_lanes(p: &BsrProblem) -> Option<&'static str> {
    p.is_bytes().then_some("f32, f16 and bf16 only")
}

/// Why a problem is nothing for a kernel that writes rows of C, if so.
pub(super) fn no_rows(p: &BsrProblem) -> Option<&'static str> {
    no_lanes(p).or((p.c == Layout::Col).then_some("rows of C are written: c=row only"))
}

/// The same for one that takes square blocks besides.
pub(super) fn no_plain(p: &BsrProblem) -> Option<&'static str> {
    no_rows(p).or((!p.is_square()).then_some("square blocks only"))
}

/// Why a problem is nothing for a kernel that reads rows of B where they lie, if so.
pub(super) fn no_rows_of_b(p: &BsrProblem) -> Option<&'static str> {
    (p.b == Layout::Col).then_some("vectors of B are read along its rows: b=row only")
}

/// A reason to stand aside as the refusal to build: what is read or written wrongly must not be launched.
pub(super) fn refuse(why: Option<&'static str>) -> Result<(), Rejection> {
    why.map_or(Ok(()), |why| Err(Rejection::DoesNotBuild { reason: why.into() }))
}

/// Runs a body with values as f32: those that are already where they lie, others widened into scratch.
pub(super) fn widened<T: Element + Typed, R>(isa: Isa, from: &[T], body: impl FnOnce(&[f32]) -> R) -> R {
    if T::DTYPE == DType::F32 {
        // SAFETY: T is f32: `Typed::DTYPE` names exactly one type.
        return body(unsafe { std::slice::from_raw_parts(from.as_ptr().cast::<f32>(), from.len()) });
    }
    scratch::with(from.len(), |to| {
        isa.run(Widen { from, to });
        body(to)
    })
}
