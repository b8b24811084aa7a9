//! One thread a call: how a library is held to it comes in; a guard that gives back what was set before goes out.

use std::ffi::c_int;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize};

use crate::pool::generation;

pub(super) type Get = unsafe extern "C" fn() -> c_int;
pub(super) type Set = unsafe extern "C" fn(c_int);
pub(super) type Swap = unsafe extern "C" fn(c_int) -> c_int;

/// How a library is held to one thread.
#[derive(Debug)]
pub(super) enum Limit {
    /// MKL's way: for the calling thread; what was set before comes back.
    Swap(Swap),
    /// OpenMP's way: for the calling thread.
    Thread(Get, Set),
    /// OpenBLAS's way: for the whole process, others included who call the library.
    Process(Shared),
    /// There is none.
    None,
}

/// A setting of the whole process: the first of several calls at once changes it, the last changes it back. The lock is
/// known by the fork it was taken after: a child does not wait for a thread that its parent has kept.
#[derive(Debug)]
pub(super) struct Shared {
    get: Get,
    set: Set,
    /// Who holds the lock: one more than the forks there had been; nobody is 0.
    holder: AtomicU64,
    /// Forks there had been when calls were last counted.
    born: AtomicU64,
    calls: AtomicUsize,
    before: AtomicI32,
}

impl Shared {
    fn enter(&self) {
        self.locked(|| {
            // SAFETY: the functions of a loaded library, which read and write a number.
            let now = unsafe { (self.get)() };
            if self.calls.fetch_add(1, Relaxed) == 0 && now > 1 {
                self.before.store(now, Relaxed);
                // SAFETY: as above.
                unsafe { (self.set)(1) };
            }
        });
    }

    fn leave(&self) {
        self.locked(|| {
            if self.calls.load(Relaxed) > 0 && self.calls.fetch_sub(1, Relaxed) == 1 {
                self.restore();
            }
        });
    }

    fn restore(&self) {
        let before = self.before.swap(0, Relaxed);
        if before > 1 {
            // SAFETY: as in `enter`.
            unsafe { (self.set)(before) };
        }
    }

    fn locked(&self, body: impl FnOnce()) {
        let forks = generation();
        let own = forks + 1;
        let mut free = 0;
        while let Err(holder) = self.holder.compare_exchange_weak(free, own, Acquire, Relaxed) {
            free = if holder == own { 0 } else { holder };
            std::thread::yield_now();
        }
        if self.born.swap(forks, Relaxed) != forks {
            // Whoever was calling has stayed with the parent.
            self.calls.store(0, Relaxed);
            self.restore();
        }
        body();
        self.holder.store(0, Release);
    }
}

/// Holds a library to one thread for as long as it lives.
pub(super) enum Held<'l> {
    Swapped(Swap, c_int),
    Thread(Set, c_int),
    Process(&'l Shared),
    Free,
}

impl Limit {
    pub(super) fn process(get: Get, set: Set) -> Self {
        let (holder, born) = (AtomicU64::new(0), AtomicU64::new(generation()));
        Limit::Process(Shared { get, set, holder, born, calls: AtomicUsize::new(0), before: AtomicI32::new(0) })
    }

    /// Holds the library for a call of this thread's.
    #[inline]
    pub(super) fn hold(&self) -> Held<'_> {
        // SAFETY: the functions of a loaded library, which read and write a number.
        unsafe {
            match self {
                Limit::Swap(swap) => Held::Swapped(*swap, swap(1)),
                Limit::Thread(get, set) => {
                    let before = get();
                    set(1);
                    Held::Thread(*set, before)
                }
                Limit::Process(shared) => {
                    shared.enter();
                    Held::Process(shared)
                }
                Limit::None => Held::Free,
            }
        }
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: as in `hold`.
        unsafe {
            match *self {
                Held::Swapped(swap, before) => _ = swap(before),
                Held::Thread(set, before) => set(before),
                Held::Process(shared) => shared.leave(),
                Held::Free => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static THREADS: AtomicI32 = AtomicI32::new(4);

    extern "C" fn get() -> c_int {
        THREADS.load(Relaxed)
    }

    extern "C" fn set(threads: c_int) {
        THREADS.store(threads, Relaxed);
    }

    #[test]
    fn what_the_process_had_set_is_set_again_however_calls_pass_each_other() {
        let limit = Limit::process(get, set);
        let (first, second) = (limit.hold(), limit.hold());
        assert_eq!(get(), 1);
        drop(first);
        assert_eq!(get(), 1, "another call is on");
        drop(second);
        assert_eq!(get(), 4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..20_000).for_each(|_| drop(limit.hold())));
            }
        });
        assert_eq!(get(), 4);
        set(1);
        drop(limit.hold());
        assert_eq!(get(), 1, "one thread is what its user wants");
        set(4);
    }
}
