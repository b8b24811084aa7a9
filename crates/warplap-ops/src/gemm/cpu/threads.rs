//! Threads as an axis, the same for all variants: how many to try, and the floor under what so many can do.

use std::sync::atomic::{AtomicUsize, Ordering};

use warplap_core::problem::Problem;
use warplap_core::roofline::Ceilings;
use warplap_core::space::{Axis, Config};
use warplap_cpu::Cpu;

use crate::gemm::GemmProblem;

/// Floating-point operations below which waking a thread takes longer than it saves.
const WORTH_WAKING: f64 = 2e6;

/// The fewest threads of the devices seen in this process. Ceilings are those of all threads of a device, and a floor
/// is asked for without the device: with too few here it is only too low, which prunes less and nothing wrongly.
static FEWEST: AtomicUsize = AtomicUsize::new(usize::MAX);

fn all(cpu: &Cpu) -> i64 {
    FEWEST.fetch_min(cpu.threads(), Ordering::Relaxed);
    cpu.threads() as i64
}

/// One thread and all; the default is all where the work is worth waking them.
pub(super) fn axis(p: &GemmProblem, cpu: &Cpu) -> Axis {
    let all = all(cpu);
    Axis::ints("threads", if p.work().flops < WORTH_WAKING { [1, all] } else { [all, 1] })
}

/// Bytes below which waking a thread takes longer than it saves in a product that is a matter of memory.
const WORTH_READING: f64 = 512e3;

/// The same for products that are a matter of memory.
pub(super) fn stream_axis(p: &GemmProblem, cpu: &Cpu) -> Axis {
    let all = all(cpu);
    Axis::ints("threads", if p.work().bytes < WORTH_READING { [1, all] } else { [all, 1] })
}

/// The least seconds so many threads can take, given ceilings of all threads. One thread may reach more than its share
/// of the bandwidth, so only arithmetic is divided.
pub(super) fn floor(p: &GemmProblem, config: &Config, ceilings: &Ceilings) -> Option<f64> {
    let threads = config.size("threads").unwrap_or(1).max(1);
    // Before any device was seen nothing is known of its threads.
    let all = FEWEST.load(Ordering::Relaxed);
    let share = if all == usize::MAX { 1.0 } else { threads as f64 / all.max(threads) as f64 };
    let flops = ceilings.flops.get(&p.dtype).copied().filter(|f| *f > 0.0)?;
    let alone = p.work().flops / (flops * share);
    Some(ceilings.floor(p.work(), p.dtype, false)?.max(alone))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use warplap_core::dtype::DType;

    #[test]
    fn one_of_two_threads_has_half_the_ceiling() {
        let cpu = Cpu::with_threads(2);
        let p = GemmProblem::new(100, 100, 100, DType::F32);
        let ceilings = Ceilings { flops: BTreeMap::from([(DType::F32, 2e9)]), ..Ceilings::default() };
        let floor = |threads: i64| floor(&p, &Config::new().with("threads", threads), &ceilings).unwrap();
        assert!(axis(&p, &cpu).values().len() == cpu.threads());
        assert_eq!(floor(2), 1e-3);
        assert_eq!(floor(1), 1e-3 * cpu.threads() as f64);
    }
}
