//! Stages: packing tasks, then products that read what was packed, again and again, in one go of the pool.
//!
//! There is no barrier: a task waits only for the earlier tasks it needs. Tasks are taken in order and a packing task
//! is never behind what waits for it, so those waited for are already running and no one waits forever.

use std::sync::atomic::{AtomicUsize, Ordering};

use warplap_cpu::pool::Pool;

/// How many tasks there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stages {
    /// Threads.
    pub threads: usize,
    /// Stages, one after another.
    pub stages: usize,
    /// Packing tasks of a stage.
    pub packs: usize,
    /// Products of a stage; those of one stage start when all of the stage before have ended.
    pub products: usize,
    /// Buffers that stages pack into by turns.
    pub buffers: usize,
}

/// A counter that goes up even when its task unwinds: those who wait must not wait forever.
struct Done<'a>(&'a AtomicUsize);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

fn wait(counter: &AtomicUsize, target: usize) {
    let mut spins = 0u32;
    while counter.load(Ordering::Acquire) < target {
        spins += 1;
        // The thread waited for may have lost its core to another process.
        if spins > 4000 { std::thread::yield_now() } else { std::hint::spin_loop() }
    }
}

impl Stages {
    /// Runs `pack(stage, task)` and `multiply(stage, task)` for all of them.
    pub(crate) fn run(self, pool: &Pool, pack: impl Fn(usize, usize) + Sync, multiply: impl Fn(usize, usize) + Sync) {
        let counters: Vec<[AtomicUsize; 2]> = (0..self.stages).map(|_| Default::default()).collect();
        let tasks = self.packs + self.products;
        pool.each(self.threads, self.stages * tasks, |i| {
            let (stage, task) = (i / tasks, i % tasks);
            let [packed, multiplied] = &counters[stage];
            if task < self.packs {
                if stage >= self.buffers {
                    wait(&counters[stage - self.buffers][1], self.products);
                }
                let _done = Done(packed);
                pack(stage, task);
            } else {
                wait(packed, self.packs);
                if stage > 0 {
                    wait(&counters[stage - 1][1], self.products);
                }
                let _done = Done(multiplied);
                multiply(stage, task - self.packs);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_see_their_stage_packed_and_the_stage_before_done() {
        let pool = Pool::new(4);
        for (threads, buffers) in [(1, 1), (2, 2), (4, 1), (4, 2)] {
            let stages = Stages { threads, stages: 9, packs: 3, products: 5, buffers };
            let seen: Vec<[AtomicUsize; 2]> = (0..9).map(|_| Default::default()).collect();
            stages.run(
                &pool,
                |stage, _| {
                    if stage >= buffers {
                        assert_eq!(seen[stage - buffers][1].load(Ordering::SeqCst), 5);
                    }
                    seen[stage][0].fetch_add(1, Ordering::SeqCst);
                },
                |stage, _| {
                    assert_eq!(seen[stage][0].load(Ordering::SeqCst), 3);
                    if stage > 0 {
                        assert_eq!(seen[stage - 1][1].load(Ordering::SeqCst), 5);
                    }
                    seen[stage][1].fetch_add(1, Ordering::SeqCst);
                },
            );
            assert!(seen.iter().all(|s| s[1].load(Ordering::SeqCst) == 5));
        }
    }
}
