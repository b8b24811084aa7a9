//! The clock: one sample is enough launches that reading the clock does not show.

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::Instant;

use warplap_core::device::Launch;
use warplap_core::measure::{Clock, Lap};
use warplap_core::rejection::Rejection;

use crate::device::Cpu;
use crate::pool::Pool;

/// The share of a sample that reading the clock may take.
const CLOCK_SHARE: f64 = 0.002;

/// Launches of one sample at the most.
const MAX_BATCH: u32 = 1 << 16;

/// Seconds one sample shall take: long enough that the operating system's own work shows in few samples, short enough
/// that a race has many of them.
const SAMPLE: f64 = 100e-6;

/// Kernels longer than this are not launched before their turn: what the first launch of a block costs more (threads that
/// wake up, caches that others have filled, some tens of microseconds) does not show in them.
const LONG: f64 = 2e-3;

thread_local! {
    static TIMED: Cell<bool> = const { Cell::new(false) };
}

/// Whether what this thread launches is only timed, and nobody reads what it leaves.
pub fn is_timed() -> bool {
    TIMED.get()
}

/// Says so for as long as it lives.
struct Timed;

impl Timed {
    fn start() -> Timed {
        TIMED.set(true);
        Timed
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        TIMED.set(false);
    }
}

/// Seconds it takes to read the clock twice: the shortest of many tries, found once per process.
pub fn overhead() -> f64 {
    static OVERHEAD: OnceLock<f64> = OnceLock::new();
    *OVERHEAD.get_or_init(|| {
        (0..2000)
            .map(|_| {
                let start = Instant::now();
                start.elapsed().as_secs_f64()
            })
            .fold(f64::INFINITY, f64::min)
            .clamp(1e-9, 1e-5)
    })
}

/// A kernel ready to be timed, as programs call it: a block of launches, behind a parallel operation of the threads that
/// the process shares, if there are any. The first launch of a block does not count. Back to back, every launch counts
/// and nothing comes before it.
pub(crate) struct CpuLap<'k> {
    launch: Launch<'k, Cpu>,
    pool: &'k Pool,
    sets: usize,
    next: usize,
    batch: u32,
    clock: Clock,
    /// Whether a launch that does not count comes first.
    leads_in: bool,
}

impl<'k> CpuLap<'k> {
    /// Runs once to warm up and once to see how many launches a sample needs.
    pub(crate) fn new(pool: &'k Pool, clock: Clock, sets: usize, launch: Launch<'k, Cpu>) -> Result<Self, Rejection> {
        let mut lap = CpuLap { launch, pool, sets: sets.max(1), next: 0, batch: 1, clock, leads_in: false };
        let first = lap.time()?;
        // A kernel that takes milliseconds needs no second look.
        let once = if first > 1e-3 { first } else { lap.time()?.min(first) };
        let wanted = SAMPLE.max(2.0 * overhead() / CLOCK_SHARE);
        lap.batch = if once > 0.0 { (wanted / once).ceil().clamp(1.0, f64::from(MAX_BATCH)) as u32 } else { MAX_BATCH };
        lap.leads_in = clock == Clock::Use && once < LONG;
        Ok(lap)
    }

    fn launch(&mut self) -> Result<(), Rejection> {
        (self.launch)(&(), self.next)?;
        self.next += 1;
        if self.next == self.sets {
            self.next = 0;
        }
        Ok(())
    }

    fn time(&mut self) -> Result<f64, Rejection> {
        let _timed = Timed::start();
        if self.clock == Clock::Use {
            self.pool.rouse();
        }
        if self.leads_in {
            self.launch()?;
        }
        let start = Instant::now();
        for _ in 0..self.batch {
            self.launch()?;
        }
        Ok((start.elapsed().as_secs_f64() - overhead()).max(0.0) / f64::from(self.batch))
    }
}

impl Lap for CpuLap<'_> {
    fn run(&mut self) -> Result<f64, Rejection> {
        self.time()
    }

    fn batch(&self) -> u32 {
        self.batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_kernels_are_batched_and_sets_rotate() {
        let seen = Cell::new([0u32; 3]);
        let launch: Launch<'_, Cpu> = Box::new(|_, set| {
            let mut counts = seen.get();
            counts[set] += 1;
            seen.set(counts);
            assert!(is_timed());
            Ok(())
        });
        let pool = Pool::new(1);
        let mut lap = CpuLap::new(&pool, Clock::Use, 3, launch).unwrap();
        assert!(lap.batch() > 100, "an empty kernel takes nanoseconds: {}", lap.batch());
        assert!(lap.run().unwrap() < 1e-5);
        let [a, b, c] = seen.get();
        assert!(a.abs_diff(b) <= 1 && b.abs_diff(c) <= 1);
        assert!(!is_timed());
    }
}
