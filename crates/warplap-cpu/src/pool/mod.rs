//! Threads: a loop that hands out tasks as threads come free, on threads that the process has already where it has some.
//!
//! Two pools in one process starve each other, so threads are shared: those of an OpenMP runtime that is loaded, those
//! of a pool the program hands in, and a pool of our own only where there is neither. After a fork, which leaves threads
//! behind, the pool is made anew.

mod forked;
#[cfg(unix)]
mod openmp;
#[cfg(not(unix))]
#[path = "no_openmp.rs"]
mod openmp;

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use rayon::ThreadPool;

pub(crate) use forked::generation;
use openmp::OpenMp;

/// The device's threads.
#[derive(Debug)]
pub struct Pool {
    threads: usize,
    /// A crew that is replaced is never freed: it was left behind by a fork, and its threads' locks with it.
    workers: AtomicPtr<ThreadTeam>,
}

/// The threads of one process.
#[derive(Debug)]
struct ThreadTeam {
    /// Forks there had been when it was made.
    born: u64,
    openmp: Option<OpenMp>,
    /// Whether the runtime's threads are there: it cannot make them anew after a fork.
    runs_openmp: bool,
    own: OnceLock<Option<Arc<ThreadPool>>>,
}

impl Pool {
    /// A pool of so many threads, the caller's included. They are made when they are first needed; where that fails, the
    /// caller works alone.
    pub fn new(threads: usize) -> Self {
        // Watched from here on: others may use the runtime, and fork, before this pool is first used.
        generation();
        Pool { threads: threads.max(1), workers: AtomicPtr::default() }
    }

    /// The threads of a pool that the program has already.
    pub fn borrowed(pool: Arc<ThreadPool>) -> Self {
        let threads = pool.current_num_threads().max(1);
        let own = OnceLock::from(Some(pool));
        let workers = ThreadTeam { born: generation(), openmp: None, runs_openmp: false, own };
        Pool { threads, workers: AtomicPtr::new(Box::into_raw(Box::new(workers))) }
    }

    /// Threads there are.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `task(0) … task(tasks - 1)` on at most `threads` threads, the caller's included, each task once. A thread
    /// takes the next task when it comes free, so uneven tasks balance themselves.
    pub fn each(&self, threads: usize, tasks: usize, task: impl Fn(usize) + Sync) {
        let threads = threads.min(self.threads).min(tasks);
        if threads <= 1 {
            (0..tasks).for_each(task);
            return;
        }
        self.share(threads, tasks, &task);
    }

    /// The same on several threads; compiled once, not for each kind of task.
    fn share(&self, threads: usize, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
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
        let workers = self.team();
        if let Some(openmp) = workers.team() {
            let came = AtomicUsize::new(0);
            openmp.run(&|| {
                if came.fetch_add(1, Ordering::Relaxed) < threads {
                    work();
                }
            });
            return;
        }
        match workers.own(self.threads).filter(|_| workers.grants() > 1) {
            Some(own) => own.in_place_scope(|scope| {
                for _ in 1..threads.min(workers.grants()) {
                    scope.spawn(|_| work());
                }
                work();
            }),
            None => work(),
        }
    }

    /// Runs a closure inside a pool of rayon's, for libraries that bring their own rayon loops.
    pub fn install<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        match self.team().own(self.threads).filter(|_| self.threads > 1) {
            Some(own) => own.install(f),
            None => f(),
        }
    }

    /// Makes the threads that are this pool's own, where it has to have some. Those of a runtime are each caller's.
    pub fn start(&self) {
        let team = self.team();
        if self.threads > 1 && team.team().is_none() {
            team.own(self.threads);
        }
    }

    /// Brings threads that are shared with others into the state that a parallel operation of theirs leaves them in:
    /// awake, and on a core each. Whether there are any.
    pub fn rouse(&self) -> bool {
        let team = self.team().team().filter(|_| self.threads > 1);
        if let Some(openmp) = team {
            openmp.run(&|| ());
        }
        team.is_some()
    }

    #[inline]
    fn team(&self) -> &ThreadTeam {
        let workers = self.workers.load(Ordering::Acquire);
        // SAFETY: a crew that was put here lives as long as the pool.
        match unsafe { workers.as_ref() } {
            Some(there) if there.born == generation() => there,
            _ => self.muster(workers),
        }
    }

    #[cold]
    fn muster(&self, before: *mut ThreadTeam) -> &ThreadTeam {
        let born = generation();
        let openmp = OpenMp::find();
        // In a child the runtime would wait for threads that the parent has kept.
        let runs_openmp = openmp.is_some() && born == 0;
        let workers = Box::into_raw(Box::new(ThreadTeam { born, openmp, runs_openmp, own: OnceLock::new() }));
        match self.workers.compare_exchange(before, workers, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: it is the pool's now, and lives as long.
            Ok(_) => unsafe { &*workers },
            Err(first) => {
                // SAFETY: another thread was first: nobody has seen this one, and that one lives as long as the pool.
                unsafe {
                    drop(Box::from_raw(workers));
                    &*first
                }
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let workers = *self.workers.get_mut();
        // SAFETY: nobody borrows the pool any more, and the pointer came from a box.
        unsafe {
            if workers.as_ref().is_some_and(|c| c.born == generation()) {
                drop(Box::from_raw(workers));
            }
        }
    }
}

impl ThreadTeam {
    fn team(&self) -> Option<&OpenMp> {
        self.openmp.as_ref().filter(|_| self.runs_openmp)
    }

    /// Threads that the program grants: in a child of a process with a runtime, what that one says. Loaders of data
    /// start many children and set it to 1 in each.
    fn grants(&self) -> usize {
        self.openmp.as_ref().map_or(usize::MAX, OpenMp::threads)
    }

    fn own(&self, threads: usize) -> Option<&Arc<ThreadPool>> {
        let named = |i| format!("warplap-{i}");
        let make =
            || rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(named).build().ok().map(Arc::new);
        self.own.get_or_init(make).as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    fn every_task_runs_once(pool: &Pool) {
        for (threads, tasks) in [(1, 7), (2, 1), (4, 100), (9, 3), (3, 0)] {
            let seen: Vec<AtomicU64> = (0..tasks).map(|_| AtomicU64::new(0)).collect();
            pool.each(threads, tasks, |i| {
                seen[i].fetch_add(1, Ordering::Relaxed);
            });
            assert!(seen.iter().all(|s| s.load(Ordering::Relaxed) == 1), "{threads} threads, {tasks} tasks");
        }
    }

    #[test]
    fn every_task_runs_exactly_once() {
        every_task_runs_once(&Pool::new(4));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn threads_that_were_started_before_do_not_have_the_priority_of_who_uses_them() {
        // SAFETY: it reads the calling thread's own.
        let priority = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let (pool, own) = (Pool::new(2), priority());
        if pool.team().team().is_some() {
            // Threads of a runtime are each caller's.
            return;
        }
        pool.start();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: it sets the calling thread's own.
                assert_eq!(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, own + 5) }, 0);
                assert_eq!(pool.install(priority), own);
            });
        });
        assert_eq!(priority(), own, "a thread's priority is its own");
    }

    #[test]
    fn a_program_can_lend_its_own_threads() {
        let borrowed = rayon::ThreadPoolBuilder::new().num_threads(3).thread_name(|i| format!("theirs-{i}")).build();
        let pool = Pool::borrowed(Arc::new(borrowed.unwrap()));
        assert_eq!(pool.threads(), 3);
        every_task_runs_once(&pool);
        let names = std::sync::Mutex::new(Vec::new());
        pool.each(3, 64, |_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            names.lock().unwrap().push(std::thread::current().name().unwrap_or_default().to_string());
        });
        let names = names.into_inner().unwrap();
        assert!(names.iter().any(|n| n.starts_with("theirs-")), "{names:?}");
        assert!(names.iter().all(|n| !n.starts_with("warplap-")), "{names:?}");
    }
}
