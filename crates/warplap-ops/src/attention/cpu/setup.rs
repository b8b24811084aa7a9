//! What all variants share: axes for threads and instruction sets, and the floor that fewer threads raise.

use warplap_core::dtype::DType;
use warplap_core::problem::Problem;
use warplap_core::roofline::Ceilings;
use warplap_core::space::{Axis, Config};
use warplap_cpu::Cpu;
use warplap_cpu::simd::Isa;

use crate::attention::AttentionProblem;

/// Why a variant that walks through keys as they lie stands aside.
pub(super) const UNEVEN: &str = "keys in pages or of unequal lengths: the variant for decoding takes those";

/// Why a variant whose tasks are of one length stands aside.
pub(super) const PACKED: &str = "sequences lie one behind the other: variants that take each by its own length do that";

/// Whether a variant that takes sequences by their own lengths, but keys as they lie, stands aside.
pub(super) fn is_scattered(p: &AttentionProblem) -> bool {
    p.is_uneven() && p.packed.is_none()
}

/// Floating-point operations below which a second thread may cost more than it brings (waking one takes some 10 µs).
const WORTH_THREADS: f64 = 100e6;

/// Whether one thread, or narrower vectors, could win.
pub(super) fn small(p: &AttentionProblem) -> bool {
    p.work().flops <= WORTH_THREADS
}

/// Threads: all, or one; large problems do not ask about one.
pub(super) fn threads(p: &AttentionProblem, cpu: &Cpu) -> Axis {
    let all = cpu.threads() as i64;
    if small(p) { Axis::ints("threads", [all, 1]) } else { Axis::ints("threads", [all]) }
}

/// Instruction sets: the best one first; narrower ones only where problems are so small that they could win.
pub(super) fn isa(p: &AttentionProblem, cpu: &Cpu) -> Axis {
    let mut names: Vec<&str> = Isa::available().into_iter().rev().map(Isa::name).collect();
    if !small(p) {
        names = vec![cpu.isa().name()];
    }
    Axis::choices("isa", &names)
}

/// The setting of both axes.
pub(super) fn chosen(config: &Config) -> (usize, Isa) {
    let isa = match config.get("isa") {
        Some(warplap_core::space::Value::Text(name)) => Isa::named(name),
        _ => None,
    };
    (config.size("threads").unwrap_or(1).max(1), isa.unwrap_or_else(Isa::best))
}

/// The least seconds for arithmetic in f32 on the threads a setting takes.
pub(super) fn floor(p: &AttentionProblem, config: &Config, ceilings: &Ceilings) -> Option<f64> {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let share = chosen(config).0.min(all) as f64 / all as f64;
    let flops = *ceilings.flops.get(&DType::F32)?;
    (flops > 0.0).then(|| p.work().flops / (flops * share))
}
