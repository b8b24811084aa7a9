//! The background: races that nobody waits for come in as jobs; one thread of the process runs them, one by one.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::engine::settings::Stop;

/// A race: it is handed the word to stop.
pub(crate) type Job = Box<dyn FnOnce(&Stop) + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// The word to stop for the job under way.
    running: Option<Stop>,
    /// The process whose thread works: after a fork it is another one, and the thread is not in it.
    process: Option<u32>,
    closed: bool,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { jobs: VecDeque::new(), running: None, process: None, closed: false });
static CHANGED: Condvar = Condvar::new();

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends a race to the end of the queue.
pub(crate) fn send(job: Job) {
    let (mut queue, here) = (queue(), std::process::id());
    if queue.closed {
        return;
    }
    if queue.process != Some(here) {
        // What waited in a process that this one was forked from is raced there.
        (queue.jobs, queue.running) = (VecDeque::new(), None);
        let thread = std::thread::Builder::new().name("warplap-race".into());
        if thread.spawn(work).is_err() {
            return;
        }
        queue.process = Some(here);
    }
    queue.jobs.push_back(job);
    CHANGED.notify_all();
}

/// How far a race stands back behind the program's own threads (0 … 19, as `nice` has it). On two busy cores the longest
/// stall of a call beside a race was 8 ms at 0 and 5 ms at 10; further back is no better.
#[cfg(target_os = "linux")]
const PRIORITY: i32 = 10;

fn work() {
    // Of this thread, and of those that it starts, alone.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, PRIORITY);
    let mut waiting = queue();
    loop {
        let Some(job) = waiting.jobs.pop_front() else {
            waiting = CHANGED.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let stop = Stop::default();
        waiting.running = Some(stop.clone());
        drop(waiting);
        // A race that panics harms nobody but itself.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job(&stop)));
        waiting = queue();
        waiting.running = None;
        CHANGED.notify_all();
    }
}

/// Whether nothing is raced and nothing waits for it.
pub fn is_idle() -> bool {
    let queue = queue();
    queue.jobs.is_empty() && queue.running.is_none()
}

/// Ends the race under way with what it has measured, forgets those that wait, and takes no more; waits for at most so
/// long. To be called before a process ends.
pub fn close(patience: Duration) {
    let until = Instant::now() + patience;
    let mut queue = queue();
    queue.closed = true;
    queue.jobs.clear();
    if let Some(stop) = &queue.running {
        stop.say();
    }
    while queue.running.is_some() && queue.process == Some(std::process::id()) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        queue = CHANGED.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}
