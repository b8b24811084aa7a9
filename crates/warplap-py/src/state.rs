//! The state of the process: one device, one store, and for each mode a desk per operation.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, Guard};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use warplap::core::catalog::Catalog;
use warplap::core::dispatch::Dispatch;
use warplap::core::problem::Problem;
use warplap::core::store::{MemoryStore, Store, open_or_memory};
use warplap::core::variant::Kernel;
use warplap::ops::{attention, bsr, gemm};
use warplap::{Attention, Bsr, Bucket, Cpu, Cuda, Gemm, Mode, Session, Settings, Stop, Tuner};

use crate::foreign::{self, Described, Foreign, Foreigner};
use crate::gpu::Gpus;
use crate::watch::{Watch, ended};

pub(crate) const MODES: [Mode; 4] = [Mode::Off, Mode::Replay, Mode::Record, Mode::Tune];

/// A problem's kernel of choice.
pub(crate) struct Entry<O: warplap::Op> {
    pub(crate) kernel: Arc<dyn Kernel<O, Cpu>>,
    /// The callable itself, where the choice is a foreign one: given the caller's own tensors it needs no views.
    pub(crate) foreign: Option<Arc<Foreigner>>,
    /// Whether one launch is so short that other threads need not be let in.
    pub(crate) brief: bool,
}

/// Work below which the interpreter's lock is kept during a launch: some microseconds.
const BRIEF_FLOPS: f64 = 4e5;

/// The tuner of one operation and what it has chosen so far.
pub(crate) struct Desk<O: Described> {
    pub(crate) tuner: Tuner<O, Cpu>,
    ready: Dispatch<O::Problem, Entry<O>>,
}

impl<O: Described> Desk<O> {
    fn new(state: &State, mode: Mode, own: Catalog<O, Cpu>) -> Self {
        let settings = Settings { mode, ..state.settings.clone() };
        Desk { tuner: state.tuner(own, state.store.clone(), settings), ready: Dispatch::new() }
    }

    /// Hands the choice for a problem to `f`. What is not known is raced with the interpreter's lock given up.
    #[inline]
    pub(crate) fn with<R>(
        &self,
        py: Python<'_>,
        problem: &O::Problem,
        f: impl FnOnce(&Entry<O>) -> PyResult<R>,
    ) -> PyResult<R> {
        match self.ready.with(problem, f) {
            Ok(done) => done,
            Err(f) => f(&*self.choose(py, problem)?),
        }
    }

    /// Whether a choice was made already.
    pub(crate) fn knows(&self, problem: &O::Problem) -> bool {
        self.ready.with(problem, |_| ()).is_ok()
    }

    #[cold]
    fn choose(&self, py: Python<'_>, problem: &O::Problem) -> PyResult<Arc<Entry<O>>> {
        let settings = self.tuner.settings();
        let chosen = py.detach(|| {
            if settings.mode == Mode::Tune {
                // Tuned here first, so that Ctrl-C is heard.
                let _ = self.tuner.tune(problem, &Watch { stop: settings.stop.clone(), tell: None });
            }
            self.tuner.choose(problem)
        });
        if settings.stop.said() {
            refresh();
        }
        let chosen = ended(chosen)?;
        let foreign = foreign::find(O::NAME, &chosen.candidate.variant);
        let entry = Arc::new(Entry { kernel: chosen.kernel, foreign, brief: problem.work().flops < BRIEF_FLOPS });
        self.ready.put(problem.clone(), entry.clone());
        Ok(entry)
    }
}

/// One desk an operation.
pub(crate) struct Desks {
    pub(crate) gemm: Desk<Gemm>,
    pub(crate) attention: Desk<Attention>,
    pub(crate) bsr: Desk<Bsr>,
}

/// One device, one store, desks by mode.
pub(crate) struct State {
    pub(crate) device: Arc<Cpu>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) warning: Option<String>,
    pub(crate) settings: Settings,
    desks: [OnceLock<Desks>; 4],
    gpus: Gpus,
}

impl State {
    fn new(device: Arc<Cpu>, store: Arc<dyn Store>, warning: Option<String>, settings: Settings) -> Self {
        State { device, store, warning, settings, desks: Default::default(), gpus: Gpus::default() }
    }

    /// A tuner over an operation's own variants and the foreign ones.
    pub(crate) fn tuner<O: Described>(
        &self,
        own: Catalog<O, Cpu>,
        store: Arc<dyn Store>,
        settings: Settings,
    ) -> Tuner<O, Cpu> {
        let join = |catalog: Catalog<O, Cpu>, face| catalog.with(Arc::new(Foreign::new(face)));
        let catalog = foreign::of(O::NAME).into_iter().fold(own, join);
        Tuner::new(self.device.clone(), catalog, store, settings)
    }

    /// The session of a GPU in the present mode.
    #[inline]
    pub(crate) fn gpu(&self, ordinal: usize) -> PyResult<&Session<Cuda>> {
        let mode = MODE.load(Ordering::Relaxed) as usize;
        self.gpus.session(ordinal, mode, &self.store, &self.settings)
    }

    /// The desks of the present mode.
    #[inline]
    pub(crate) fn desks(&self) -> &Desks {
        let mode = MODE.load(Ordering::Relaxed) as usize;
        self.desks[mode].get_or_init(|| Desks {
            gemm: Desk::new(self, MODES[mode], gemm::cpu::catalog()),
            attention: Desk::new(self, MODES[mode], attention::cpu::catalog()),
            bsr: Desk::new(self, MODES[mode], bsr::cpu::catalog()),
        })
    }
}

static MODE: AtomicU8 = AtomicU8::new(3);
static STATE: OnceLock<ArcSwap<State>> = OnceLock::new();

fn usual() -> &'static ArcSwap<State> {
    STATE.get_or_init(|| {
        let opened = open_or_memory(None);
        ArcSwap::from_pointee(State::new(Arc::new(Cpu::new()), opened.store, opened.warning, Settings::default()))
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
    let next = State::new(now.device.clone(), now.store.clone(), now.warning.clone(), settings);
    usual().store(Arc::new(next));
}

/// Forgets what was chosen so far in this process; the store stays.
#[pyfunction]
pub(crate) fn forget() {
    refresh();
}

/// The present mode's name.
#[pyfunction]
pub(crate) fn mode() -> &'static str {
    MODES[MODE.load(Ordering::Relaxed) as usize].name()
}

/// Sets the mode.
#[pyfunction]
pub(crate) fn set_mode(mode: &str) -> PyResult<()> {
    let mode: Mode = mode.parse().map_err(PyValueError::new_err)?;
    let at = MODES.iter().position(|m| *m == mode).unwrap_or(3);
    MODE.store(at as u8, Ordering::Relaxed);
    Ok(())
}

/// Reads a bucket's name.
pub(crate) fn bucket(name: &str) -> PyResult<Bucket> {
    match name {
        "exact" => Ok(Bucket::Exact),
        "pow2" => Ok(Bucket::PowerOfTwo),
        other => Err(PyValueError::new_err(format!("bucket: '{other}' is not known, expected exact or pow2"))),
    }
}

/// Changes what is given and keeps the rest; the warning about the store, if there is one.
#[pyfunction]
#[pyo3(signature = (*, store=None, in_memory=false, budget=None, bucket=None, threads=None, libraries=None))]
pub(crate) fn configure(
    py: Python<'_>,
    store: Option<PathBuf>,
    in_memory: bool,
    budget: Option<f64>,
    bucket: Option<&str>,
    threads: Option<usize>,
    libraries: Option<Vec<(String, String)>>,
) -> PyResult<Option<String>> {
    if let Some(seconds) = budget.filter(|s| !s.is_finite() || *s <= 0.0) {
        return Err(PyValueError::new_err(format!("budget: is {seconds}, expected seconds above 0")));
    }
    if threads == Some(0) {
        return Err(PyValueError::new_err("threads: is 0, expected 1 or more"));
    }
    let bucket = bucket.map(self::bucket).transpose()?;
    let now = usual().load_full();
    let device = match (threads, &libraries) {
        (None, None) => now.device.clone(),
        _ => {
            let soft = &warplap::core::device::Device::fingerprint(&*now.device).soft;
            let cpu = Cpu::with_threads(threads.unwrap_or_else(|| now.device.threads()));
            let kept = soft.iter().map(|(name, version)| (name.clone(), version.clone()));
            let named = kept.chain(libraries.unwrap_or_default());
            Arc::new(named.fold(cpu, |cpu, (name, version)| cpu.with_library(&name, &version)))
        }
    };
    let (store, warning): (Arc<dyn Store>, _) = if in_memory {
        (Arc::new(MemoryStore::new()), None)
    } else if let Some(path) = store {
        let opened = py.detach(|| open_or_memory(Some(&path)));
        (opened.store, opened.warning)
    } else {
        (now.store.clone(), now.warning.clone())
    };
    let mut settings = Settings { stop: Stop::default(), ..now.settings.clone() };
    settings.budget.seconds = budget.unwrap_or(settings.budget.seconds);
    settings.bucket = bucket.unwrap_or(settings.bucket);
    let next = State::new(device, store, warning, settings);
    let warning = next.warning.clone();
    usual().store(Arc::new(next));
    Ok(warning)
}
