//! The state of the stand-in: faults to come, the error that sticks, what was allocated and loaded.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use crate::kernel::{Act, Lasts, Run};

/// Bytes of device memory there are: little, so that running out of it is quick.
pub(crate) const MEMORY: usize = 256 << 20;

pub(crate) const INVALID: i32 = 1;
pub(crate) const NO_MEMORY: i32 = 2;

/// A capture that is going on.
pub(crate) struct Capture {
    pub(crate) runs: Vec<Run>,
    /// Whose calls it minds: 0 everybody's, 1 those of the thread that began it.
    pub(crate) mode: i32,
    pub(crate) thread: ThreadId,
    /// Somebody did what it does not allow.
    pub(crate) spoiled: bool,
    /// What it will be.
    pub(crate) graph: usize,
}

/// What graphs keep: with the last of them it is told so.
pub(crate) struct Object {
    pub(crate) value: usize,
    pub(crate) destroy: extern "C" fn(usize),
}

impl Drop for Object {
    fn drop(&mut self) {
        (self.destroy)(self.value);
    }
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) calls: HashMap<&'static str, u64>,
    /// After a fatal error every call gives it again.
    pub(crate) stuck: i32,
    /// What the kernels launched so far will say when they are waited for.
    pub(crate) pending: Option<Act>,
    pub(crate) allocated: HashMap<usize, usize>,
    /// Bytes that the pool keeps of what was given back to it.
    pub(crate) kept: usize,
    pub(crate) modules: Vec<String>,
    /// Address and bytes of globals, by module and name.
    pub(crate) globals: HashMap<(usize, String), (usize, usize)>,
    /// Each with the module it is of.
    pub(crate) functions: Vec<(usize, Act, Lasts)>,
    pub(crate) events: HashMap<usize, Instant>,
    pub(crate) next: usize,
    /// Blocks of a cluster of the last launch, and whether it might begin early.
    pub(crate) attributes: ([u32; 3], bool),
    /// Captures by stream.
    pub(crate) captured: HashMap<usize, Capture>,
    pub(crate) graphs: HashMap<usize, Vec<Run>>,
    /// Objects that no graph has taken yet, and those of each graph and instance.
    pub(crate) objects: HashMap<usize, Object>,
    pub(crate) owned: HashMap<usize, Vec<Arc<Object>>>,
    /// The first element of a and the answer at the last launch of a kernel that remembers, by the address of c.
    pub(crate) remembered: HashMap<usize, (f32, Vec<f32>)>,
    /// What all launches drew.
    pub(crate) millijoules: u64,
    /// Microseconds that launches took on the device beside what the host took to do their work, and how much of the
    /// last one may be run beside.
    pub(crate) micros: f64,
    pub(crate) tail: f64,
}

impl State {
    pub(crate) fn handle(&mut self) -> usize {
        self.next += 1;
        self.next
    }

    /// A launch runs: one that may begin early does so while the one before ends.
    pub(crate) fn passes(&mut self, lasts: Lasts) {
        let beside = if lasts.early { self.tail } else { 0.0 };
        self.micros += (lasts.micros - beside).max(0.0);
        self.tail = lasts.tail;
    }

    /// What launches took beside the host's own time.
    pub(crate) fn passed(&self) -> Duration {
        Duration::from_secs_f64(self.micros * 1e-6)
    }
}

pub(crate) fn state() -> MutexGuard<'static, State> {
    static STATE: OnceLock<Mutex<State>> = OnceLock::new();
    STATE.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// What every call does first: counts itself, and fails, hangs or dies where that was planted.
pub(crate) fn enter(call: &'static str) -> Result<(), i32> {
    let count = {
        let mut state = state();
        let count = state.calls.entry(call).or_default();
        *count += 1;
        *count
    };
    static PLANTED: OnceLock<String> = OnceLock::new();
    let planted = PLANTED.get_or_init(|| std::env::var("WARPLAP_STANDIN").unwrap_or_default());
    for fault in planted.split(',') {
        let mut words = fault.split(':');
        let (Some(name), Some(at), Some(what)) = (words.next(), words.next(), words.next()) else { continue };
        if name != call || (at != "0" && at.parse() != Ok(count)) {
            continue;
        }
        match what {
            "hang" => hang(),
            "die" => std::process::abort(),
            code => fail(code.parse().unwrap_or(999))?,
        }
    }
    match state().stuck {
        0 => Ok(()),
        code => Err(code),
    }
}

/// Gives a code, and gives it for ever where cuda.h says that the process must be relaunched.
pub(crate) fn fail(code: i32) -> Result<(), i32> {
    if code >= 700 && !matches!(code, 701 | 720 | 801) {
        state().stuck = code;
    }
    Err(code)
}

pub(crate) fn hang() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

thread_local! {
    /// How this thread's calls get along with captures: 0 global, 1 of its own, 2 relaxed.
    pub(crate) static MODE: Cell<i32> = const { Cell::new(0) };
}

/// What allocates, loads or waits is refused while a stream is captured, and spoils the capture; threads that said that
/// they know what they do are let through.
pub(crate) fn outside_capture() -> Result<(), i32> {
    let this = std::thread::current().id();
    let mut state = state();
    let minds = |c: &&mut Capture| MODE.get() != 2 && (c.mode == 0 || c.mode == 1 && c.thread == this);
    let spoiled = state.captured.values_mut().filter(minds).map(|c| c.spoiled = true).count();
    // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.
    if spoiled == 0 { Ok(()) } else { Err(900) }
}

/// Waits for the kernels launched so far.
pub(crate) fn wait() -> Result<(), i32> {
    let pending = state().pending.take();
    match pending {
        Some(Act::Fault(code)) => fail(code),
        Some(Act::Hang) => hang(),
        _ => Ok(()),
    }
}

pub(crate) fn code(outcome: Result<(), i32>) -> i32 {
    outcome.err().unwrap_or(0)
}
