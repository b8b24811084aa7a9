//! Threads: a pool whose callers work too, and a loop that hands out tasks as threads come free.

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::ThreadPool;

/// The device's threads.
#[derive(Debug)]
pub struct Pool {
    threads: usize,
    inner: Option<ThreadPool>,
}

impl Pool {
    /// A pool of so many threads, the caller's included. Where threads cannot be made, the caller works alone.
    pub fn new(threads: usize) -> Self {
        let threads = threads.max(1);
        let named = |i| format!("warplap-{i}");
        let inner = (threads > 1)
            .then(|| rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(named).build().ok())
            .flatten();
        Pool { threads: if inner.is_some() { threads } else { 1 }, inner }
    }

    /// Threads there are.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `task(0) … task(tasks - 1)` on at most `threads` threads, the caller's included, each task once. A thread
    /// takes the next task when it comes free, so uneven tasks balance themselves.
    pub fn each(&self, threads: usize, tasks: usize, task: impl Fn(usize) + Sync) {
        let threads = threads.min(self.threads).min(tasks);
        let Some(inner) = self.inner.as_ref().filter(|_| threads > 1) else {
            (0..tasks).for_each(task);
            return;
        };
        let next = AtomicUsize::new(0);
        let work = || {
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= tasks {
                    break;
                }
                task(i);
            }
        };
        inner.in_place_scope(|scope| {
            for _ in 1..threads {
                scope.spawn(|_| work());
            }
            work();
        });
    }

    /// Runs a closure inside the pool, for libraries that bring their own rayon loops.
    pub fn install<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        match &self.inner {
            Some(inner) => inner.install(f),
            None => f(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn every_task_runs_exactly_once() {
        let pool = Pool::new(4);
        for (threads, tasks) in [(1, 7), (2, 1), (4, 100), (9, 3), (3, 0)] {
            let seen: Vec<AtomicU64> = (0..tasks).map(|_| AtomicU64::new(0)).collect();
            pool.each(threads, tasks, |i| {
                seen[i].fetch_add(1, Ordering::Relaxed);
            });
            assert!(seen.iter().all(|s| s.load(Ordering::Relaxed) == 1), "{threads} threads, {tasks} tasks");
        }
    }
}
