//! What operations on rows share on the CPU: axes for threads and instruction sets, rows dealt out to threads, and one
//! row in vectors. Tails are vectors of which the first lanes count.

use std::cell::RefCell;
use std::sync::Arc;

use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space, Value};
use warplap_cpu::Cpu;
use warplap_cpu::pool::Pool;
use warplap_cpu::simd::{Element, Isa, Lanes, exp2};

/// Bytes below which one thread may be faster than several: waking one takes some 10 µs.
const WORTH_THREADS: f64 = 4e6;

/// Bytes written above which stores past the caches may be faster: what is written is not read first.
const WORTH_STREAMS: f64 = 1e6;

/// Elements of a task, at the least.
const TASK: usize = 1 << 14;

/// Sums that are kept side by side: a chain of additions is as slow as its latency.
pub(crate) const CHAINS: usize = 4;

/// Threads and instruction sets for so many bytes: all threads first, and one where the rows are few; the best
/// instruction set first.
pub(crate) fn space(bytes: f64, cpu: &Cpu) -> Space {
    let alone = (cpu.threads() > 1 && bytes <= WORTH_THREADS).then_some(1);
    let isas: Vec<&str> = Isa::available().into_iter().rev().map(Isa::name).collect();
    let threads = [cpu.threads() as i64].into_iter().chain(alone);
    Space::single().axis(Axis::ints("threads", threads)).axis(Axis::choices("isa", &isas))
}

/// The same with the axis of whether so many bytes are written past the caches.
pub(crate) fn streaming_space(bytes: f64, written: f64, cpu: &Cpu) -> Space {
    let streams = if written > WORTH_STREAMS { &[0, 1][..] } else { &[0] };
    space(bytes, cpu).axis(Axis::ints("stream", streams.iter().copied()))
}

/// What a Config says, with the threads to do it.
pub(crate) struct Setting {
    /// The instruction set.
    pub(crate) isa: Isa,
    /// Whether results are written past the caches, where they lie so that they can be.
    pub(crate) streams: bool,
    threads: usize,
    pool: Arc<Pool>,
}

impl Setting {
    /// Reads a Config of [`space`] or [`streaming_space`].
    pub(crate) fn read(config: &Config, cpu: &Cpu) -> Result<Self, Rejection> {
        let isa = match config.get("isa") {
            Some(Value::Text(name)) => Isa::named(name),
            _ => None,
        };
        let unknown = || Rejection::DoesNotBuild { reason: "axis 'isa' is not set to a value of this machine".into() };
        let (isa, threads) = (isa.ok_or_else(unknown)?, config.size("threads").unwrap_or(1));
        Ok(Setting { isa, streams: config.int("stream") == Some(1), threads, pool: cpu.pool().clone() })
    }

    /// How many runs rows of n elements are dealt out in, and how many rows a run has.
    pub(crate) fn runs(&self, rows: usize, n: usize) -> (usize, usize) {
        // Some tasks a thread, so that threads which come late find less to do.
        let run = rows.div_ceil(4 * self.threads.max(1)).max(TASK.div_ceil(n.max(1)));
        (rows.div_ceil(run), run)
    }

    /// Hands runs of rows of n elements, first and one past the last, to a body on several threads.
    pub(crate) fn each(&self, rows: usize, n: usize, body: impl Fn(usize, usize) + Sync) {
        let (runs, run) = self.runs(rows, n);
        self.pool.each(self.threads, runs, |i| body(i * run, rows.min((i + 1) * run)));
    }

    /// Whether rows of n elements at an address can be and are to be written past the caches.
    pub(crate) fn streams<T>(&self, to: *const T, n: usize) -> bool {
        let (line, row) = (size_of::<T>() * self.isa.lanes(), n * size_of::<T>());
        self.streams && (to as usize).is_multiple_of(line) && row.is_multiple_of(line)
    }
}

thread_local! {
    /// A row in f32: memory that is there already.
    static KEPT: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Numbers beyond a row that the last vector of it may write.
const BEYOND: usize = 64;

/// Lends this thread's room for a row of n numbers, and one vector more.
pub(crate) fn with_row<R>(n: usize, body: impl FnOnce(&mut [f32]) -> R) -> R {
    KEPT.with_borrow_mut(|kept| {
        kept.resize(kept.len().max(n + BEYOND), 0.0);
        body(kept)
    })
}

/// # Safety
/// As for `Element::load` of `count` elements.
#[inline(always)]
pub(crate) unsafe fn load<L: Lanes, T: Element>(p: *const T, count: usize) -> L::V {
    // SAFETY: the caller's word.
    unsafe { if count >= L::N { T::load::<L>(p) } else { T::load_first::<L>(p, count) } }
}

/// # Safety
/// As for `Element::store` of `count` elements.
#[inline(always)]
pub(crate) unsafe fn store<L: Lanes, T: Element>(p: *mut T, count: usize, v: L::V) {
    // SAFETY: the caller's word.
    unsafe { if count >= L::N { T::store::<L>(p, v) } else { T::store_first::<L>(p, v, count) } }
}

/// Stores, past the caches where `streams` says so.
///
/// # Safety
/// As for [`store`]; with `streams` the address lies on a multiple of a vector's bytes and all lanes count.
#[inline(always)]
pub(crate) unsafe fn put<L: Lanes, T: Element>(p: *mut T, count: usize, v: L::V, streams: bool) {
    // SAFETY: the caller's word.
    unsafe { if streams { T::stream::<L>(p, v) } else { store::<L, T>(p, count, v) } }
}

/// A vector with zero in the lanes that do not count.
///
/// # Safety
/// The machine has the instruction set of `L`.
#[inline(always)]
pub(crate) unsafe fn counted<L: Lanes>(v: L::V, count: usize) -> L::V {
    const ONES: [f32; 64] = [1.0; 64];
    // SAFETY: no vector has more than 64 lanes.
    unsafe { if count < L::N { L::mul(v, L::load_first(ONES.as_ptr(), count)) } else { v } }
}

/// A vector with -inf in the lanes that do not count.
///
/// # Safety
/// The machine has the instruction set of `L`.
#[inline(always)]
pub(crate) unsafe fn shown<L: Lanes>(v: L::V, count: usize) -> L::V {
    if count >= L::N {
        return v;
    }
    let mut lanes = [f32::NEG_INFINITY; 64];
    // SAFETY: no vector has more than 64 lanes; the caller's word.
    unsafe {
        L::store_first(lanes.as_mut_ptr(), v, count);
        L::load(lanes.as_ptr())
    }
}

/// e^x for x that are not positive, and NaN for NaN.
///
/// # Safety
/// The machine has the instruction set of `L`.
#[inline(always)]
pub(crate) unsafe fn weight<L: Lanes>(x: L::V) -> L::V {
    // SAFETY: the caller's word.
    unsafe {
        // NaN is the second of the two, which is what `max` then gives; below -210 nothing is left anyway.
        let x = L::max(L::splat(-210.0), x);
        L::fma(x, L::zero(), exp2::<L>(L::mul(x, L::splat(std::f32::consts::LOG2_E))))
    }
}

/// Runs a body for every vector of a row of `n`: which chain it is for, where it begins, how many lanes count. A macro,
/// since only what is sure to be inlined is compiled with the instruction set's features.
macro_rules! each {
    ($L:ident, $n:expr, |$chain:pat_param, $at:ident, $count:ident| $body:expr) => {{
        let (n, step, mut from) = ($n, CHAINS * $L::N, 0);
        while from + step <= n {
            for chain in 0..CHAINS {
                let ($chain, $at, $count) = (chain, from + chain * $L::N, $L::N);
                $body;
            }
            from += step;
        }
        while from < n {
            let ($chain, $at, $count) = (0, from, $L::N.min(n - from));
            $body;
            from += $L::N;
        }
    }};
}
pub(crate) use each;

/// The sum of all lanes of all chains.
///
/// # Safety
/// The machine has the instruction set of `L`.
#[inline(always)]
pub(crate) unsafe fn total<L: Lanes>(chains: [L::V; CHAINS]) -> f32 {
    // SAFETY: the caller's word.
    unsafe { L::sum(L::add(L::add(chains[0], chains[1]), L::add(chains[2], chains[3]))) }
}

/// The largest of all lanes of all chains.
///
/// # Safety
/// The machine has the instruction set of `L`.
#[inline(always)]
pub(crate) unsafe fn largest<L: Lanes>(chains: [L::V; CHAINS]) -> f32 {
    // SAFETY: the caller's word.
    unsafe { L::largest(L::max(L::max(chains[0], chains[1]), L::max(chains[2], chains[3]))) }
}
