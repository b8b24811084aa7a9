//! Forks: how often this process is the child of one. Threads do not come along, so whoever keeps threads looks here
//! before it hands them work.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

static FORKS: AtomicU64 = AtomicU64::new(0);

/// Forks that lie between the first call of this function and now, on the child's side.
pub(crate) fn generation() -> u64 {
    watch();
    FORKS.load(Ordering::Relaxed)
}

#[cfg(unix)]
fn watch() {
    extern "C" fn in_the_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: the handler adds to an atomic, which is allowed in a child that has one thread.
        // It can only fail for want of memory; a fork is then not seen, as if nobody watched.
        unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
    });
}

#[cfg(not(unix))]
fn watch() {
    static NOTHING_TO_WATCH: Once = Once::new();
    NOTHING_TO_WATCH.call_once(|| ());
}
