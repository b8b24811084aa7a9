//! Ceilings: what this CPU can do at best, measured once and kept in the store.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

use warplap_core::dtype::DType;
use warplap_core::roofline::{Bandwidth, Ceilings};

use crate::device::Cpu;
use crate::load;
use crate::simd::{Lanes, Task};

/// Independent chains of multiply-adds: enough to hide their latency of four cycles on two units.
const CHAINS: usize = 12;

/// Rounds of which the fastest counts: a ceiling is what the machine can do, not what it does on average.
const ROUNDS: usize = 8;

/// Places read at once: prefetchers follow several streams, and kernels have several.
const STREAMS: usize = 8;

/// A server is shared with other tenants, its caches, its memory and the power that its clock follows: what a second of
/// measuring shows is near the ceiling but not the ceiling, and a right kernel must not be called impossible for having
/// met a quieter moment (a product of torch's was, where arithmetic had shown 222 GFLOP/s of 350).
const HEADROOM: f64 = 1.25;

/// The working set that stands for main memory.
const MEMORY: u64 = 128 << 20;

/// Cycles a second of the fastest CPUs there are, and some more: no system says a chip's own highest clock for sure.
const CYCLES: f64 = 6.5e9;

/// Multiply-adds of vectors that a core starts in a cycle, and bytes it moves to and from its nearest cache: two loads
/// and a store of the widest vectors.
const UNITS: f64 = 2.0;
const BYTES_A_CYCLE: f64 = 192.0;

/// FLOP of a cycle's tile products, where a core has tiles.
const TILES: f64 = 2048.0;

/// What no CPU of so many threads can exceed, however quiet it is.
pub(crate) fn data_sheet(cpu: &Cpu) -> Ceilings {
    let cycles = cpu.threads() as f64 * CYCLES;
    let lanes = cycles * UNITS * 2.0 * cpu.isa().lanes() as f64;
    // Some vector units multiply pairs of half types.
    let half = (2.0 * lanes).max(if has_tiles() { cycles * TILES } else { 0.0 });
    let flops = [(DType::F32, lanes), (DType::F16, half), (DType::Bf16, half), (DType::F64, lanes)];
    let bandwidth = vec![Bandwidth { capacity: u64::MAX, rate: cycles * BYTES_A_CYCLE }];
    Ceilings { flops: flops.into(), tf32: None, bandwidth, launch: 0.0, load: 0.0 }
}

#[cfg(target_arch = "x86_64")]
fn has_tiles() -> bool {
    crate::amx::Amx::get().is_some()
}

#[cfg(not(target_arch = "x86_64"))]
fn has_tiles() -> bool {
    false
}

/// Measures arithmetic and bandwidth with all threads.
pub(crate) fn measure(cpu: &Cpu) -> Ceilings {
    let load = load::others(cpu.threads()).unwrap_or(0.0);
    let f32_rate = HEADROOM * best(|| arithmetic(cpu));
    // Half types are widened to f32 before arithmetic, unless there are tiles for them; double precision has half the
    // lanes.
    let flops = BTreeMap::from([
        (DType::F32, f32_rate),
        (DType::F16, f32_rate),
        (DType::Bf16, (HEADROOM * best(|| tiles(cpu))).max(f32_rate)),
        (DType::F64, f32_rate / 2.0),
    ]);
    let caches = &cpu.chip().caches;
    let threads = cpu.threads() as u64;
    let mut bandwidth = Vec::new();
    for (level, &size) in caches.iter().enumerate() {
        // The last cache is shared by all threads; the others each thread has for itself.
        let shared = level + 1 == caches.len();
        let capacity = if shared { size } else { size * threads };
        // A server's last cache may be larger than the whole test should be.
        let working = (capacity / 2).min(MEMORY / 4);
        bandwidth.push(Bandwidth { capacity, rate: best(|| reading(cpu, working)) });
    }
    let memory = best(|| reading(cpu, MEMORY));
    bandwidth.push(Bandwidth { capacity: u64::MAX, rate: memory });
    // Larger working sets are never faster: noise must not say so.
    for i in (0..bandwidth.len() - 1).rev() {
        bandwidth[i].rate = bandwidth[i].rate.max(bandwidth[i + 1].rate);
    }
    bandwidth.iter_mut().for_each(|level| level.rate *= HEADROOM);
    Ceilings { flops, tf32: None, bandwidth, launch: 0.0, load }
}

fn best(mut once: impl FnMut() -> f64) -> f64 {
    (0..ROUNDS).map(|_| once()).fold(0.0, f64::max)
}

/// FLOP/s of independent multiply-adds on all threads.
fn arithmetic(cpu: &Cpu) -> f64 {
    struct Chains(usize);
    impl Task for Chains {
        type Out = f64;
        #[inline(always)]
        unsafe fn run<L: Lanes>(self) -> f64 {
            // SAFETY: the task is entered by Isa::run; no memory is touched.
            unsafe {
                let mut sums = [L::splat(black_box(0.5)); CHAINS];
                let (a, b) = (L::splat(black_box(0.999)), L::splat(black_box(0.001)));
                for _ in 0..self.0 {
                    for sum in &mut sums {
                        *sum = L::fma(*sum, a, b);
                    }
                }
                black_box(sums.map(|s| L::sum(s)));
                (self.0 * CHAINS * L::N * 2) as f64
            }
        }
    }
    const STEPS: usize = 200_000;
    let threads = cpu.threads();
    let total = std::sync::Mutex::new(0.0);
    let start = Instant::now();
    cpu.pool().each(threads, threads, |_| {
        let flops = cpu.isa().run(Chains(STEPS));
        *total.lock().unwrap_or_else(|e| e.into_inner()) += flops;
    });
    let seconds = start.elapsed().as_secs_f64();
    total.into_inner().unwrap_or(0.0) / seconds.max(1e-9)
}

/// FLOP/s of tile products of brain floats on all threads; 0 where there are none.
#[cfg(target_arch = "x86_64")]
fn tiles(cpu: &Cpu) -> f64 {
    let Some(amx) = crate::amx::Amx::get() else {
        return 0.0;
    };
    let total = std::sync::Mutex::new(0.0);
    cpu.pool().each(cpu.threads(), cpu.threads(), |_| {
        let rate = amx.flops(20_000);
        *total.lock().unwrap_or_else(|e| e.into_inner()) += rate;
    });
    total.into_inner().unwrap_or(0.0)
}

#[cfg(not(target_arch = "x86_64"))]
fn tiles(_: &Cpu) -> f64 {
    0.0
}

/// Bytes per second of reading a working set shared out over all threads.
fn reading(cpu: &Cpu, bytes: u64) -> f64 {
    struct Sum<'a>(&'a [f32]);
    impl Task for Sum<'_> {
        type Out = f32;
        #[inline(always)]
        unsafe fn run<L: Lanes>(self) -> f32 {
            // SAFETY: the task is entered by Isa::run; every load ends before `STREAMS * part <= len`.
            unsafe {
                let mut sums = [L::zero(); STREAMS];
                let part = self.0.len() / STREAMS;
                for at in (0..part / L::N).map(|i| i * L::N) {
                    for (i, sum) in sums.iter_mut().enumerate() {
                        *sum = L::add(*sum, L::load(self.0.as_ptr().add(i * part + at)));
                    }
                }
                sums.map(|s| L::sum(s)).iter().sum()
            }
        }
    }
    let threads = cpu.threads();
    let each = (bytes as usize / 4 / threads).max(4096);
    thread_local! { static ROOM: std::cell::RefCell<Vec<f32>> = const { std::cell::RefCell::new(Vec::new()) }; }
    // Every thread reads its own part several times: the first pass brings it near, and is timed apart.
    let passes = ((32 << 20) / (each * 4)).max(1);
    let rate = std::sync::Mutex::new(0.0);
    cpu.pool().each(threads, threads, |_| {
        ROOM.with_borrow_mut(|room| {
            if room.len() < each {
                room.resize(each, 1.0);
            }
            black_box(cpu.isa().run(Sum(&room[..each])));
            let start = Instant::now();
            for _ in 0..passes {
                black_box(cpu.isa().run(Sum(black_box(&room[..each]))));
            }
            let mine = (passes * each * 4) as f64 / start.elapsed().as_secs_f64().max(1e-9);
            *rate.lock().unwrap_or_else(|e| e.into_inner()) += mine;
            // A large working set should not stay with us after the measurement.
            if each > 8 << 20 {
                *room = Vec::new();
            }
        });
    });
    rate.into_inner().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceilings_are_plausible_and_fall_with_the_working_set() {
        let cpu = Cpu::new();
        let flops = arithmetic(&cpu);
        assert!(flops > 1e9, "any CPU does a GFLOP/s: {flops:e}");
        assert!(reading(&cpu, 64 << 10) > 1e8);
    }
}
