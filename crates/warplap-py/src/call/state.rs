//! The state of the process: one store, and for each device and mode its desks.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use warplap::core::background;
use warplap::core::device::Device;
use warplap::core::measure::{CacheState, Clock, Policy};
use warplap::core::search;
use warplap::core::store::{Store, open_as_named, open_or_memory};
use warplap::{Bucket, Cpu, Cuda, Mode, Settings, Stop};

use crate::call::dispatcher::OpDispatchers;
use crate::call::failure::bad;
use crate::launch::gpu;

const MODES: [Mode; 5] = [Mode::Off, Mode::Replay, Mode::Record, Mode::Tune, Mode::Background];

/// Seconds a key may take on a GPU unless somebody says otherwise.
const GPU_SECONDS: f64 = 20.0;

/// How long the end of the process waits for a race in the background, which ends after the launch it is at.
const LAST_SECONDS: Duration = Duration::from_secs(5);

/// One store, and desks by device and mode.
pub(crate) struct State {
    pub(crate) device: Arc<Cpu>,
    pub(crate) store: Store,
    pub(crate) warning: Option<String>,
    pub(crate) settings: Settings,
    /// Whether somebody has said how long a key may take.
    budgeted: bool,
    dispatchers: [OnceLock<OpDispatchers<Cpu>>; MODES.len()],
    gpus: [[OnceLock<OpDispatchers<Cuda>>; MODES.len()]; gpu::DEVICES],
}

impl State {
    fn new(device: Arc<Cpu>, store: Store, warning: Option<String>, settings: Settings, budgeted: bool) -> Self {
        State { device, store, warning, settings, budgeted, dispatchers: Default::default(), gpus: Default::default() }
    }

    /// The settings on a GPU: kernels are compiled and proved in other processes there, so a key takes longer.
    pub(crate) fn gpu_settings(&self) -> Settings {
        let Policy { clock, cache, .. } = self.settings.policy;
        let policy = Policy { clock, cache, ..Cuda::usual_policy() };
        let mut settings = Settings { policy, ..self.settings.clone() };
        if !self.budgeted {
            settings.budget.seconds = GPU_SECONDS;
        }
        settings
    }

    /// The desks of the CPU in the present mode.
    #[inline]
    pub(crate) fn dispatchers(&self) -> &OpDispatchers<Cpu> {
        let mode = MODE.load(Ordering::Relaxed) as usize;
        self.dispatchers[mode].get_or_init(|| {
            let settings = Settings { mode: MODES[mode], ..self.settings.clone() };
            OpDispatchers::new(self.device.clone(), self.store.clone(), settings)
        })
    }

    /// The desks of a GPU in the present mode.
    #[inline]
    pub(crate) fn gpu(&self, ordinal: usize) -> PyResult<&OpDispatchers<Cuda>> {
        let mode = MODE.load(Ordering::Relaxed) as usize;
        let place = self.gpus.get(ordinal).map(|modes| &modes[mode]);
        if let Some(dispatchers) = place.and_then(OnceLock::get) {
            return Ok(dispatchers);
        }
        let device = gpu::device(ordinal)?;
        let place = place.ok_or_else(|| gpu::missing(ordinal))?;
        let settings = Settings { mode: MODES[mode], ..self.gpu_settings() };
        Ok(place.get_or_init(|| OpDispatchers::new(device, self.store.clone(), settings)))
    }
}

static MODE: AtomicU8 = AtomicU8::new(3);
static STATE: OnceLock<ArcSwap<State>> = OnceLock::new();

fn usual() -> &'static ArcSwap<State> {
    STATE.get_or_init(|| {
        // From here on records are held to the operations there are.
        warplap::any::operations();
        let opened = open_or_memory(None);
        let (cpu, settings) = (Arc::new(Cpu::new()), Settings::default());
        ArcSwap::from_pointee(State::new(cpu, opened.store, opened.warning, settings, false))
    })
}

/// The present state.
#[inline]
pub(crate) fn state() -> Guard<Arc<State>> {
    usual().load()
}

/// Forgets what the desks have chosen: the store or the catalogs have changed, or a race was interrupted.
pub(crate) fn refresh() {
    let now = state();
    let settings = Settings { stop: Stop::default(), ..now.settings.clone() };
    let next = State::new(now.device.clone(), now.store.clone(), now.warning.clone(), settings, now.budgeted);
    usual().store(Arc::new(next));
}

/// Forgets what was chosen so far in this process; the store stays.
#[pyfunction]
pub(crate) fn forget() {
    refresh();
}

/// The present mode.
pub(crate) fn present_mode() -> Mode {
    MODES[MODE.load(Ordering::Relaxed) as usize]
}

/// The present mode's name.
#[pyfunction]
pub(crate) fn mode() -> &'static str {
    present_mode().name()
}

/// Sets the mode.
#[pyfunction]
pub(crate) fn set_mode(mode: &str) -> PyResult<()> {
    let mode: Mode = mode.parse().map_err(PyValueError::new_err)?;
    let at = MODES.iter().position(|m| *m == mode).unwrap_or(3);
    MODE.store(at as u8, Ordering::Relaxed);
    Ok(())
}

/// Ends what is raced in the background with what it has measured; for the end of the process.
#[pyfunction]
pub(crate) fn end_background(py: Python<'_>) {
    py.detach(|| background::close(LAST_SECONDS));
}

/// Whether nothing is raced in the background.
#[pyfunction]
pub(crate) fn is_idle() -> bool {
    background::is_idle()
}

/// The largest size that shares a race with one that changes from call to call, as buckets are set.
#[pyfunction]
pub(crate) fn shared_size(size: u64) -> u64 {
    state().settings.bucket.round_changing("", size)
}

/// Reads a bucket's name.
pub(crate) fn bucket(name: &str) -> PyResult<Bucket> {
    Bucket::named(name).map_err(|why| bad(format!("bucket: {why}")))
}

/// Reads a clock's name.
pub(crate) fn clock(name: &str) -> PyResult<Clock> {
    name.parse().map_err(|why| bad(format!("clock: {why}")))
}

/// Reads the name of what is in the cache.
fn cache(name: &str) -> PyResult<CacheState> {
    name.parse().map_err(|why| bad(format!("cache: {why}")))
}

/// Changes what is given and keeps the rest; the warning about the store, if there is one.
#[pyfunction]
#[pyo3(signature = (
    *, store=None, in_memory=false, budget=None, bucket=None, threads=None, search=None, clock=None, cache=None,
    libraries=None
))]
#[expect(clippy::too_many_arguments, reason = "a Python function with named arguments")]
pub(crate) fn configure(
    py: Python<'_>,
    store: Option<PathBuf>,
    in_memory: bool,
    budget: Option<f64>,
    bucket: Option<&str>,
    threads: Option<usize>,
    search: Option<String>,
    clock: Option<&str>,
    cache: Option<&str>,
    libraries: Option<Vec<(String, String)>>,
) -> PyResult<Option<String>> {
    if let Some(seconds) = budget.filter(|s| !s.is_finite() || *s <= 0.0) {
        return Err(bad(format!("budget: is {seconds}, expected seconds above 0")));
    }
    if threads == Some(0) {
        return Err(bad("threads: is 0, expected 1 or more"));
    }
    if let Some(name) = search.as_ref().filter(|name| !search::names().contains(name)) {
        let known = search::names().join(", ");
        return Err(bad(format!("search: '{name}' is not known, expected one of {known}")));
    }
    let bucket = bucket.map(self::bucket).transpose()?;
    let clock = clock.map(self::clock).transpose()?;
    let cache = cache.map(self::cache).transpose()?;
    let now = usual().load_full();
    let device = match (threads, &libraries) {
        (None, None) => now.device.clone(),
        _ => {
            let cpu = Cpu::with_threads(threads.unwrap_or_else(|| now.device.threads()));
            let libraries = libraries.unwrap_or_default();
            gpu::race_beside(&libraries);
            let kept = now.device.fingerprint().libraries.clone();
            let named = kept.into_iter().chain(libraries);
            Arc::new(named.fold(cpu, |cpu, (name, version)| cpu.with_library(&name, &version)))
        }
    };
    let (store, warning) = if in_memory {
        (Store::memory(), None)
    } else if let Some(path) = store {
        let opened = py.detach(|| open_as_named(Some(&path)));
        let opened = opened.map_err(|e| bad(format!("store: {e}")))?;
        (opened.store, opened.warning)
    } else {
        (now.store.clone(), now.warning.clone())
    };
    let mut settings = Settings { stop: Stop::default(), ..now.settings.clone() };
    settings.budget.seconds = budget.unwrap_or(settings.budget.seconds);
    settings.bucket = bucket.unwrap_or(settings.bucket);
    settings.search = search.unwrap_or(settings.search);
    settings.policy.clock = clock.unwrap_or(settings.policy.clock);
    settings.policy.cache = cache.unwrap_or(settings.policy.cache);
    let next = State::new(device, store, warning, settings, now.budgeted || budget.is_some());
    let warning = next.warning.clone();
    usual().store(Arc::new(next));
    Ok(warning)
}
