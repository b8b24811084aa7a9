//! Threads as an axis, the same for all variants: how many to try, and the floor under what so many can do.

use warplap_core::problem::Problem;
use warplap_core::roofline::Ceilings;
use warplap_core::space::{Axis, Config};
use warplap_cpu::Cpu;

use crate::gemm::GemmProblem;

/// Floating-point operations below which waking a thread takes longer than it saves.
const WORTH_WAKING: f64 = 2e6;

/// One thread and all; the default is all where the work is worth waking them.
pub(super) fn axis(p: &GemmProblem, cpu: &Cpu) -> Axis {
    let all = cpu.threads() as i64;
    Axis::ints("threads", if p.work().flops < WORTH_WAKING { [1, all] } else { [all, 1] })
}

/// Bytes below which waking a thread takes longer than it saves in a product that is a matter of memory.
const WORTH_READING: f64 = 512e3;

/// The same for products that are a matter of memory.
pub(super) fn stream_axis(p: &GemmProblem, cpu: &Cpu) -> Axis {
    let all = cpu.threads() as i64;
    Axis::ints("threads", if p.work().bytes < WORTH_READING { [1, all] } else { [all, 1] })
}

/// The least seconds so many threads can take, given ceilings of all threads. One thread may reach more than its share
/// of the bandwidth, so only arithmetic is divided.
pub(super) fn floor(p: &GemmProblem, config: &Config, ceilings: &Ceilings) -> Option<f64> {
    let all = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let threads = (config.size("threads").unwrap_or(1) as f64).min(all);
    let flops = ceilings.flops.get(&p.dtype).copied().filter(|f| *f > 0.0)?;
    let alone = p.work().flops / (flops * threads / all);
    Some(ceilings.floor(p.work(), p.dtype, false)?.max(alone))
}
