//! Time that a process waited for a processor: a process comes in; what its first thread waited, and what its other
//! threads ran meanwhile, go out. Only Linux tells; elsewhere nobody waited.

use std::fs::read_to_string;

/// Nanoseconds so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waiting {
    first: u64,
    others_ran: u64,
}

impl Waiting {
    /// As the system tells it now.
    pub(super) fn now(process: u32) -> Self {
        let (_, first) = schedule(&format!("/proc/{process}/task/{process}/schedstat"));
        let tasks = std::fs::read_dir(format!("/proc/{process}/task"));
        let others = tasks.into_iter().flatten().flatten().map(|task| task.path());
        let others = others.filter(|path| !path.ends_with(process.to_string()));
        let others_ran = others.map(|path| schedule(&path.join("schedstat").to_string_lossy()).0).sum();
        Waiting { first, others_ran }
    }

    /// Seconds in which it could not go on, since an earlier moment. A thread that waits for others of its own process
    /// waits for its own work.
    pub(super) fn since(&self, earlier: &Waiting) -> f64 {
        let waited = self.first.saturating_sub(earlier.first);
        waited.saturating_sub(self.others_ran.saturating_sub(earlier.others_ran)) as f64 * 1e-9
    }
}

/// Nanoseconds that a thread ran, and waited.
fn schedule(path: &str) -> (u64, u64) {
    let text = read_to_string(path).unwrap_or_default();
    let mut numbers = text.split_whitespace().map(|word| word.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}
