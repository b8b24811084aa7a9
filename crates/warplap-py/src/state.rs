//! The state of the process: one device, one store, and for each mode a desk per operation.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, Guard};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use warplap::core::catalog::Catalog;
use warplap::core::device::Device;
use warplap::core::dispatch::Dispatch;
use warplap::core::problem::Problem;
use warplap::core::store::{MemoryStore, Store, open_or_memory};
use warplap::core::variant::Kernel;
use warplap::ops::{attention, bsr, gemm, sampled};
use warplap::{Attention, Bsr, Bucket, Cpu, Cuda, Gemm, Mode, Sampled, Settings, Stop, Tuner};

use crate::foreign::{self, Choice, Described, Foreign};
use crate::gpu::{GpuDesks, Gpus};
use crate::lent::Lent;
use crate::watch::{Watch, ended};
use crate::ways::Ways;

pub(crate) const MODES: [Mode; 4] = [Mode::Off, Mode::Replay, Mode::Record, Mode::Tune];

/// A problem's kernel of choice.
pub(crate) struct Entry<O: warplap::Op, D: Device = Cpu> {
    pub(crate) kernel: Arc<dyn Kernel<O, D>>,
    /// The callable itself, where the choice is a foreign one: given the caller's own tensors it needs no views.
    pub(crate) foreign: Option<Choice>,
    /// Whether one launch is so short that other threads need not be let in.
    pub(crate) brief: bool,
}

/// Work below which the interpreter's lock is kept during a launch: some microseconds.
const BRIEF_FLOPS: f64 = 4e5;

/// Seconds a key may take on a GPU unless somebody says otherwise.
const GPU_SECONDS: f64 = 20.0;

/// The tuner of one operation and what it has chosen so far.
pub(crate) struct Desk<O: Described, D: Lent = Cpu> {
    pub(crate) tuner: Tuner<O, D>,
    ready: Dispatch<O::Problem, Entry<O, D>>,
}

impl<O: Described, D: Lent> Desk<O, D> {
    pub(crate) fn new(tuner: Tuner<O, D>) -> Self {
        Desk { tuner, ready: Dispatch::new() }
    }

    /// Hands the choice for a problem to `f`. What is not known is raced with the interpreter's lock given up.
    #[inline]
    pub(crate) fn with<R>(
        &self,
        py: Python<'_>,
        problem: &O::Problem,
        queue: &D::Queue,
        f: impl FnOnce(&Entry<O, D>) -> PyResult<R>,
    ) -> PyResult<R> {
        match self.ready.with(problem, f) {
            Ok(done) => done,
            Err(f) => {
                let (entry, device) = (self.choose(py, problem, queue)?, self.tuner.device());
                match device.busy(queue) {
                    // A library may load its kernel when it is first launched, which would break a capture.
                    Some(_) => device.beside_capture(|| f(&entry)),
                    None => f(&entry),
                }
            }
        }
    }

    /// Whether a choice was made already.
    pub(crate) fn knows(&self, problem: &O::Problem) -> bool {
        self.ready.with(problem, |_| ()).is_ok()
    }

    #[cold]
    fn choose(&self, py: Python<'_>, problem: &O::Problem, queue: &D::Queue) -> PyResult<Arc<Entry<O, D>>> {
        let settings = self.tuner.settings();
        let chosen = py.detach(|| {
            if settings.mode == Mode::Tune && self.tuner.device().busy(queue).is_none() {
                // Tuned here first, so that Ctrl-C is heard.
                let _ = self.tuner.tune(problem, &Watch { stop: settings.stop.clone(), tell: None });
            }
            self.tuner.choose_on(problem, queue)
        });
        if settings.stop.said() {
            refresh();
        }
        let chosen = ended(chosen)?;
        let foreign = foreign::find(py, O::NAME, D::KIND, &chosen.candidate.variant, &chosen.candidate.config)?;
        let brief = !D::LAUNCH_IS_CALL || problem.work().flops < BRIEF_FLOPS;
        let entry = Arc::new(Entry { kernel: chosen.kernel, foreign, brief });
        // What was chosen because a stream is captured is chosen again afterwards.
        if self.tuner.with_known(problem, |_| ()).is_ok() {
            self.ready.put(problem.clone(), entry.clone());
        }
        Ok(entry)
    }
}

/// One desk an operation.
pub(crate) struct Desks {
    pub(crate) gemm: Desk<Gemm>,
    pub(crate) attention: Desk<Attention>,
    pub(crate) bsr: Desk<Bsr>,
    pub(crate) sampled: Desk<Sampled>,
}

/// One device, one store, desks by mode.
pub(crate) struct State {
    pub(crate) device: Arc<Cpu>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) warning: Option<String>,
    pub(crate) settings: Settings,
    /// Whether somebody has said how long a key may take.
    budgeted: bool,
    desks: [OnceLock<Desks>; 4],
    gpus: Gpus,
    pub(crate) ways: Ways,
}

impl State {
    fn new(
        device: Arc<Cpu>,
        store: Arc<dyn Store>,
        warning: Option<String>,
        settings: Settings,
        budgeted: bool,
    ) -> Self {
        State {
            device,
            store,
            warning,
            settings,
            budgeted,
            desks: Default::default(),
            gpus: Gpus::default(),
            ways: Ways::default(),
        }
    }

    /// A tuner over an operation's own variants and the foreign ones.
    pub(crate) fn tuner<O: Described, D: Lent>(
        &self,
        device: Arc<D>,
        own: Catalog<O, D>,
        store: Arc<dyn Store>,
        settings: Settings,
    ) -> Tuner<O, D> {
        let join = |catalog: Catalog<O, D>, face| catalog.with(Arc::new(Foreign::new(face)));
        let catalog = foreign::of(O::NAME, D::KIND).into_iter().fold(own, join);
        Tuner::new(device, catalog, store, settings)
    }

    /// The settings on a GPU: kernels are compiled and proved in other processes there, so a key takes longer.
    pub(crate) fn gpu_settings(&self) -> Settings {
        let mut settings = Settings { policy: Cuda::usual_policy(), ..self.settings.clone() };
        if !self.budgeted {
            settings.budget.seconds = GPU_SECONDS;
        }
        settings
    }

    /// The desks of a GPU in the present mode.
    #[inline]
    pub(crate) fn gpu(&self, ordinal: usize) -> PyResult<&GpuDesks> {
        let mode = MODE.load(Ordering::Relaxed) as usize;
        self.gpus.desks(ordinal, mode, self)
    }

    /// The desks of the present mode.
    #[inline]
    pub(crate) fn desks(&self) -> &Desks {
        let mode = MODE.load(Ordering::Relaxed) as usize;
        self.desks[mode].get_or_init(|| {
            let (device, store) = (|| self.device.clone(), || self.store.clone());
            let settings = || Settings { mode: MODES[mode], ..self.settings.clone() };
            Desks {
                gemm: Desk::new(self.tuner(device(), gemm::cpu::catalog(), store(), settings())),
                attention: Desk::new(self.tuner(device(), attention::cpu::catalog(), store(), settings())),
                bsr: Desk::new(self.tuner(device(), bsr::cpu::catalog(), store(), settings())),
                sampled: Desk::new(self.tuner(device(), sampled::cpu::catalog(), store(), settings())),
            }
        })
    }
}

static MODE: AtomicU8 = AtomicU8::new(3);
static STATE: OnceLock<ArcSwap<State>> = OnceLock::new();

fn usual() -> &'static ArcSwap<State> {
    STATE.get_or_init(|| {
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

/// The present mode, as a number.
#[inline]
pub(crate) fn mode_number() -> u8 {
    MODE.load(Ordering::Relaxed)
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
            let soft = &now.device.fingerprint().soft;
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
    let next = State::new(device, store, warning, settings, now.budgeted || budget.is_some());
    let warning = next.warning.clone();
    usual().store(Arc::new(next));
    Ok(warning)
}
