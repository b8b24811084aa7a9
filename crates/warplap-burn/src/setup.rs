//! What a program says once: where records are kept, how long a race may take, how many threads there are. Without a
//! word of it the usual store and budgets hold.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, Guard};
use warplap::core::store::{Store, open_or_memory};
use warplap::{Bucket, Cpu, Mode, Settings};

use crate::backends::rival;
use crate::op_dispatcher::OpDispatchers;

/// How races are run and where their records are kept.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    store: Option<PathBuf>,
    in_memory: bool,
    pub(crate) settings: Settings,
    pub(crate) budget: Option<f64>,
    threads: Option<usize>,
}

impl Setup {
    /// Records in the usual place: the user's cache directory.
    pub fn new() -> Self {
        Setup::default()
    }

    /// Records in memory alone.
    pub fn in_memory() -> Self {
        Setup { in_memory: true, ..Setup::default() }
    }

    /// Records in this directory.
    pub fn store(mut self, path: impl AsRef<Path>) -> Self {
        (self.store, self.in_memory) = (Some(path.as_ref().to_path_buf()), false);
        self
    }

    /// What to do about problems that nobody knows; they are raced unless this says otherwise.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.settings.mode = mode;
        self
    }

    /// Seconds that a race may take.
    pub fn budget(mut self, seconds: f64) -> Self {
        self.budget = Some(seconds);
        self
    }

    /// The rounding from problem to key.
    pub fn bucket(mut self, bucket: Bucket) -> Self {
        self.settings.bucket = bucket;
        self
    }

    /// Threads on the CPU; all of the machine's by default. Burn's own operations have a pool of theirs (rayon's), whose
    /// threads sleep while ours run.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }
}

/// The state of the process.
pub(crate) struct State {
    pub(crate) setup: Setup,
    pub(crate) store: Store,
    warning: Option<String>,
    cpu: OnceLock<Arc<OpDispatchers<Cpu>>>,
    #[cfg(feature = "cuda")]
    pub(crate) gpus: [OnceLock<Result<Arc<OpDispatchers<warplap::Cuda>>, String>>; crate::backends::cube::DEVICES],
}

impl State {
    fn new(setup: Setup) -> Self {
        let (store, warning) = match setup.in_memory {
            true => (Store::memory(), None),
            false => {
                let opened = open_or_memory(setup.store.as_deref());
                (opened.store, opened.warning)
            }
        };
        let cpu = OnceLock::new();
        #[cfg(feature = "cuda")]
        let gpus = [const { OnceLock::new() }; crate::backends::cube::DEVICES];
        State {
            setup,
            store,
            warning,
            cpu,
            #[cfg(feature = "cuda")]
            gpus,
        }
    }

    /// The dispatchers of the CPU.
    pub(crate) fn cpu(&self) -> Arc<OpDispatchers<Cpu>> {
        let made = || {
            let cpu = self.setup.threads.map_or_else(Cpu::new, Cpu::with_threads);
            // Records say which of Burn's own backends raced beside.
            let cpu = cpu.with_library(rival::ID, rival::VERSION);
            let mut settings = self.setup.settings.clone();
            settings.budget.seconds = self.setup.budget.unwrap_or(settings.budget.seconds);
            Arc::new(OpDispatchers::new(Arc::new(cpu), self.store.clone(), settings))
        };
        self.cpu.get_or_init(made).clone()
    }
}

fn current() -> &'static ArcSwap<State> {
    static STATE: OnceLock<ArcSwap<State>> = OnceLock::new();
    STATE.get_or_init(|| ArcSwap::from_pointee(State::new(Setup::new())))
}

/// The present state.
#[inline]
pub(crate) fn state() -> Guard<Arc<State>> {
    current().load()
}

/// Changes how races are run from now on, for the whole process. A store that cannot be used becomes one in memory: the
/// sentence says why.
pub fn configure(setup: Setup) -> Option<String> {
    let state = State::new(setup);
    let warning = state.warning.clone();
    current().store(Arc::new(state));
    warning
}
