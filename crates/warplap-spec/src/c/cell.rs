//! A cell as its caller sees it: a library comes in; its kernel is called and timed in a process of its own, and what
//! became of that goes out. `cell.c` is the other side.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use warplap::core::rejection::Rejection;
use warplap_worker::{ChildProcess, Gone, Program};

use super::memory::Memory;
use super::reply::{self, Reply};
use super::waiting::Waiting;

const LOAD: u64 = 1;
const MAP: u64 = 2;
const CALL: u64 = 3;
const TIME: u64 = 4;

/// What loading a library may take, and mapping memory.
const LOADING: Duration = Duration::from_secs(5);

/// Regions from this size on are asked for in large pages, where programs get those without asking.
const LARGE: u64 = 2 << 20;

/// Where an argument lies.
pub(crate) type Place<'m> = (&'m Memory, u64);

/// A process in which one kernel runs.
pub(crate) struct Cell {
    guest: ChildProcess,
    regions: HashMap<u64, u64>,
    number: u64,
    calls: u64,
    longest: f64,
    fallen: Option<Rejection>,
    /// What the last order took by the clock here.
    passed: Duration,
}

/// After orders that took so long it is looked at how long the next one waits for a processor.
const WATCHED: Duration = Duration::from_micros(500);

/// What timed calls showed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    /// Seconds of all calls that count.
    pub(crate) seconds: f64,
    /// Calls after which a poisoned element was still there.
    pub(crate) stale: u64,
    /// Calls that count.
    pub(crate) calls: u32,
    /// Seconds that passed here from the order to its reply, but for those in which it waited for a processor.
    pub(crate) passed: f64,
}

/// What is done in a series besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extra {
    /// Nothing.
    Nothing = 0,
    /// One more call, which does not count, finds its outputs poisoned as a whole.
    OneMore = 1,
    /// Every call finds all its outputs poisoned and all that is random in another place.
    AllNew = 2,
}

/// Timed calls as they are asked for.
pub(crate) struct Series<'m> {
    /// Calls that do not count, and calls that do.
    pub(crate) calls: (u32, u32),
    /// When this has passed, the call in hand is the last one.
    pub(crate) enough: Duration,
    /// The set to begin with.
    pub(crate) first: usize,
    /// Four words for each argument: see `perturb` in `cell.c`.
    pub(crate) plan: &'m [[u64; 4]],
    /// The places of each set.
    pub(crate) sets: Vec<Vec<Place<'m>>>,
    /// What is drawn between calls is drawn by.
    pub(crate) seed: u64,
    /// What is done besides.
    pub(crate) extra: Extra,
}

impl Cell {
    /// Starts a process that may take so many bytes for itself, and loads a library there.
    pub(crate) fn start(program: &Path, library: &Path, memory: u64) -> Result<Self, Rejection> {
        let mut cell = Self::without_kernel(program, memory)?;
        let failed = |why: String| Rejection::LaunchFailed { reason: why };
        let mut path = std::os::unix::ffi::OsStrExt::as_bytes(library.as_os_str()).to_vec();
        path.resize(path.len().next_multiple_of(8), 0);
        let words: Vec<u64> =
            path.chunks_exact(8).map(|c| u64::from_ne_bytes(c.try_into().unwrap_or_default())).collect();
        if cell.order(LOAD, &words, None, 0, LOADING)?.failed {
            let said = cell.guest.last_words().unwrap_or_default();
            return Err(failed(format!("the library does not load: {said}")));
        }
        Ok(cell)
    }

    /// Starts a process whose calls do nothing: what is left of a measurement is what stands around them.
    pub(crate) fn empty(program: &Path, memory: u64) -> Result<Self, Rejection> {
        let mut cell = Self::without_kernel(program, memory)?;
        cell.order(LOAD, &[], None, 0, LOADING)?;
        Ok(cell)
    }

    fn without_kernel(program: &Path, memory: u64) -> Result<Self, Rejection> {
        let arguments = vec![memory.to_string().into()];
        let program = Program { path: program.into(), arguments, environment: Vec::new() };
        let failed = |why: String| Rejection::LaunchFailed { reason: why };
        let guest = ChildProcess::start(&program).map_err(|e| failed(format!("no process to run it in: {e}")))?;
        let (regions, passed) = (HashMap::new(), Duration::ZERO);
        Ok(Cell { guest, regions, number: 0, calls: 0, longest: 0.0, fallen: None, passed })
    }

    /// Calls the kernel once.
    pub(crate) fn call(&mut self, places: &[Place<'_>], patience: Duration) -> Result<(), Rejection> {
        let words = self.words(places)?;
        self.calls += 1;
        let reply = self.order(CALL, &words, None, 1, patience)?;
        self.longest = self.longest.max(reply.nanoseconds as f64 * 1e-9);
        Ok(())
    }

    /// Calls the kernel in a row and times it there.
    pub(crate) fn time(&mut self, series: &Series<'_>, patience: Duration) -> Result<Timed, Rejection> {
        let (lead, batch) = series.calls;
        let (sets, arguments) = (series.sets.len() as u64, series.plan.len() as u64);
        let more = series.extra as u64;
        let enough = series.enough.as_nanos() as u64;
        let head = [lead.into(), batch.into(), enough, series.first as u64, sets, arguments, series.seed, more];
        let mut words: Vec<u64> = head.into_iter().chain(series.plan.iter().flatten().copied()).collect();
        for places in &series.sets {
            words.extend(self.words(places)?);
        }
        let calls = u64::from(lead) + u64::from(batch) + u64::from(series.extra == Extra::OneMore);
        self.calls += calls;
        let (process, started) = (self.guest.id(), Instant::now());
        let before = (self.passed > WATCHED).then(|| Waiting::now(process));
        let reply = self.order(TIME, &words, None, calls, patience)?;
        // All that it waited lies within the time that is taken.
        let passed = match before {
            Some(before) => {
                let waited = Waiting::now(process).since(&before);
                started.elapsed().as_secs_f64() - waited
            }
            None => self.passed.as_secs_f64(),
        };
        Ok(Timed {
            seconds: reply.nanoseconds as f64 * 1e-9,
            stale: reply.stale,
            calls: reply.calls.clamp(1, batch.into()) as u32,
            passed,
        })
    }

    /// Places as the cell knows them; memory it has not seen yet is handed over.
    fn words(&mut self, places: &[Place<'_>]) -> Result<Vec<u64>, Rejection> {
        let mut words = Vec::with_capacity(2 * places.len());
        for (memory, offset) in places {
            let region = match self.regions.get(&memory.id()) {
                Some(region) => *region,
                None => {
                    let large = u64::from(memory.whole() >= LARGE && large_pages());
                    self.order(MAP, &[memory.whole(), large], Some(memory.file().as_fd()), 0, LOADING)?;
                    let region = self.regions.len() as u64;
                    self.regions.insert(memory.id(), region);
                    region
                }
            };
            words.extend([region, memory.at() + offset]);
        }
        Ok(words)
    }

    /// Says an order of so many calls and waits for its reply. Who has fallen once stays fallen.
    fn order(
        &mut self,
        op: u64,
        words: &[u64],
        file: Option<BorrowedFd<'_>>,
        calls: u64,
        patience: Duration,
    ) -> Result<Reply, Rejection> {
        if let Some(rejection) = &self.fallen {
            return Err(rejection.clone());
        }
        self.number += 1;
        let head = [op, words.len() as u64, self.number];
        let bytes: Vec<u8> = head.iter().chain(words).flat_map(|word| word.to_ne_bytes()).collect();
        let mut reply = [0; reply::BYTES];
        self.guest.thaw();
        let started = Instant::now();
        let sent = self.guest.send(&bytes, file.as_slice());
        let heard = sent.and_then(|()| self.guest.receive(&mut reply, Instant::now() + patience));
        let after = self.after();
        self.passed = started.elapsed();
        let fallen = match heard.map(|()| Reply::read(&reply, self.number, calls, self.passed)) {
            Ok(Ok(reply)) => {
                self.guest.freeze();
                return Ok(reply);
            }
            Ok(Err(Rejection::Crashed { reason })) => Rejection::Crashed { reason: format!("{reason}{after}") },
            Ok(Err(rejection)) => rejection,
            Err(Gone::Silent) => Rejection::TimedOut { seconds: patience.as_secs_f64() },
            Err(Gone::Ended(how)) => Rejection::Crashed { reason: format!("{how}{after}") },
        };
        self.guest.kill();
        self.fallen = Some(fallen.clone());
        Err(fallen)
    }

    /// Seconds of the longest of single calls.
    pub(crate) fn longest(&self) -> f64 {
        self.longest
    }

    /// Which call it was, for a reason.
    pub(crate) fn after(&self) -> String {
        match self.calls {
            0 => " when it was loaded".into(),
            1 => ", at its first call".into(),
            calls => format!(", within its first {calls} calls"),
        }
    }
}

/// Whether programs get large pages without asking: then kernels shall have them here too.
fn large_pages() -> bool {
    static ALWAYS: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    let message = || std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    *ALWAYS.get_or_init(|| message().is_ok_and(|text| text.contains("[always]")))
}
