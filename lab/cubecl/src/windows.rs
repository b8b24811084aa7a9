//! Windows: short runs of many calls, alternated between lanes so that the machine's moods strike all of them alike.

use std::mem::MaybeUninit;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Calls of one window.
pub const CALLS: usize = 1_000;
/// Calls between two signs of life of a thread.
const STEP: usize = 100;
/// How long both threads run one lane before they change to the next.
const SPAN: Duration = Duration::from_millis(4);

/// Nanoseconds of one call, over [`CALLS`] of them.
pub fn window(mut call: impl FnMut(usize)) -> f64 {
    // The other lanes have just used the caches.
    (0..STEP).for_each(&mut call);
    let start = Instant::now();
    (0..CALLS).for_each(&mut call);
    start.elapsed().as_nanos() as f64 / CALLS as f64
}

/// One window of each lane a round, another lane first each time. By lane, by round.
pub fn alternate(lanes: &[&dyn Fn() -> f64], rounds: usize) -> Vec<Vec<f64>> {
    let mut all = vec![Vec::with_capacity(rounds); lanes.len()];
    for round in 0..rounds {
        for at in 0..lanes.len() {
            let lane = (round + at) % lanes.len();
            all[lane].push(lanes[lane]());
        }
    }
    all
}

/// A counter with a cache line (and the one fetched with it) to itself.
#[repr(align(128))]
#[derive(Default)]
struct Steps(AtomicU64);

/// Two threads at once, each knowing how far the other has come.
#[derive(Default)]
pub struct Pair([Steps; 2]);

impl Pair {
    /// Windows of thread `me` for one span. On a busy machine two threads are often one: a window counts when the other
    /// thread ran meanwhile, and this one was not put aside for somebody else.
    pub fn span(&self, me: usize, mut call: impl FnMut(usize)) -> Vec<f64> {
        let (own, other) = (&self.0[me].0, &self.0[1 - me].0);
        let mut windows = Vec::new();
        let until = Instant::now() + SPAN;
        loop {
            let (before, aside) = (other.load(Ordering::Relaxed), times_put_aside());
            let start = Instant::now();
            for step in 0..CALLS / STEP {
                (step * STEP..(step + 1) * STEP).for_each(&mut call);
                own.fetch_add(1, Ordering::Relaxed);
            }
            let end = Instant::now();
            let met = other.load(Ordering::Relaxed) - before >= (CALLS / STEP / 2) as u64;
            if met && times_put_aside() == aside {
                windows.push((end - start).as_nanos() as f64 / CALLS as f64);
            }
            if end > until {
                return windows;
            }
        }
    }
}

/// A lane of two threads: which of them, and what both know of each other.
pub type Both<'a> = &'a (dyn Fn(usize, &Pair) -> Vec<f64> + Sync);

/// One span of each lane a round, in two threads at once. All windows of both threads by lane.
pub fn together(lanes: &[Both<'_>], rounds: usize) -> Vec<Vec<f64>> {
    let (pair, barrier) = (Pair::default(), Barrier::new(2));
    let thread = |me: usize| {
        stay_on(me);
        let mut all = vec![Vec::new(); lanes.len()];
        for _ in 0..rounds {
            for (lane, windows) in lanes.iter().zip(&mut all) {
                barrier.wait();
                windows.extend(lane(me, &pair));
            }
        }
        all
    };
    let (mut one, two) = std::thread::scope(|scope| {
        let threads = [scope.spawn(|| thread(0)), scope.spawn(|| thread(1))];
        let [one, two] = threads.map(|t| t.join().expect("no panic"));
        (one, two)
    });
    one.iter_mut().zip(two).for_each(|(all, more)| all.extend(more));
    one
}

/// How often the scheduler took the processor from this thread. Waiting for a lock does not count.
fn times_put_aside() -> i64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a whole `rusage`, for which zeros are a value.
    unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init().ru_nivcsw
    }
}

/// Keeps this thread on the n-th processor it may use: threads that wake each other tend to end up on one.
fn stay_on(n: usize) {
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: both sets are whole, zeros are the empty one, and the indices are below their size.
    unsafe {
        let (mut may, mut one) = (MaybeUninit::zeroed().assume_init(), MaybeUninit::zeroed().assume_init());
        libc::sched_getaffinity(0, size, &mut may);
        if let Some(cpu) = (0..libc::CPU_SETSIZE as usize).filter(|cpu| libc::CPU_ISSET(*cpu, &may)).nth(n) {
            libc::CPU_SET(cpu, &mut one);
            libc::sched_setaffinity(0, size, &one);
        }
    }
}
