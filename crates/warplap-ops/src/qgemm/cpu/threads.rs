//! Threads as an axis, the same for all variants: how many to try.

use warplap_core::problem::Problem;
use warplap_core::space::Axis;
use warplap_cpu::Cpu;

use crate::qgemm::QgemmProblem;

/// The axis of how many threads run.
pub(super) const THREADS: &str = "threads";

/// Operations below which waking a thread takes longer than it saves.
const WORTH_WAKING: f64 = 2e6;

/// One thread and all; the default is all where the work is worth waking them.
pub(super) fn axis(p: &QgemmProblem, cpu: &Cpu) -> Axis {
    let all = cpu.threads() as i64;
    Axis::ints(THREADS, if p.work().flops < WORTH_WAKING { [1, all] } else { [all, 1] })
}
