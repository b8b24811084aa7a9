//! The host's threads, for right answers: loops come in; they run on threads that survive a fork.

use std::sync::LazyLock;

use warplap_cpu::pool::Pool;

/// Runs loops of rayon's on threads that are made anew after a fork: those of its global pool never are, and a child
/// would wait for them for ever.
pub(crate) fn in_parallel<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    static POOL: LazyLock<Pool> =
        LazyLock::new(|| Pool::new(std::thread::available_parallelism().map_or(1, usize::from)));
    POOL.install(work)
}
