//! A session: one device, one store, a tuner per operation. Args come in; a Problem goes to the tuner.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use warplap_core::bucket::Bucket;
use warplap_core::error::Error;
use warplap_core::measure::Policy;
use warplap_core::settings::{Budget, Mode, Settings, Stop};
use warplap_core::store::{MemoryStore, Store, open_or_memory};
use warplap_core::tuner::Tuner;
use warplap_core::variant::Kernel;
use warplap_cpu::{Cpu, Slice, SliceMut};
use warplap_ops::gemm::{self, Gemm, GemmArgs, GemmProblem};

/// One device, one store, a tuner per operation. Make one per program and share it between threads.
pub struct Session {
    device: Arc<Cpu>,
    store: Arc<dyn Store>,
    warning: Option<String>,
    gemm: Tuner<Gemm, Cpu>,
}

/// How a session is made.
#[derive(Default)]
pub struct SessionBuilder {
    place: Place,
    settings: Settings,
    threads: Option<usize>,
}

#[derive(Default)]
enum Place {
    #[default]
    Usual,
    Directory(PathBuf),
    Memory,
}

impl SessionBuilder {
    /// Keeps records in this directory instead of the usual one.
    pub fn store(mut self, directory: impl AsRef<Path>) -> Self {
        self.place = Place::Directory(directory.as_ref().to_path_buf());
        self
    }

    /// Keeps records in memory alone.
    pub fn in_memory(mut self) -> Self {
        self.place = Place::Memory;
        self
    }

    /// What to do about unknown keys.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.settings.mode = mode;
        self
    }

    /// The rounding from problem to key.
    pub fn bucket(mut self, bucket: Bucket) -> Self {
        self.settings.bucket = bucket;
        self
    }

    /// How candidates are measured.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.settings.policy = policy;
        self
    }

    /// When to stop tuning one key.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.settings.budget = budget;
        self
    }

    /// The word to stop.
    pub fn stop(mut self, stop: Stop) -> Self {
        self.settings.stop = stop;
        self
    }

    /// All settings at once.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Threads to use; all of the machine's by default.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Makes the session. A store that cannot be used becomes one in memory, with a warning.
    pub fn build(self) -> Session {
        let device = Arc::new(self.threads.map_or_else(Cpu::new, Cpu::with_threads));
        let (store, warning): (Arc<dyn Store>, _) = match self.place {
            Place::Memory => (Arc::new(MemoryStore::new()), None),
            Place::Usual => {
                let opened = open_or_memory(None);
                (opened.store, opened.warning)
            }
            Place::Directory(path) => {
                let opened = open_or_memory(Some(&path));
                (opened.store, opened.warning)
            }
        };
        let settings = self.settings;
        let gemm = Tuner::new(device.clone(), gemm::cpu::catalog(), store.clone(), settings.clone());
        Session { device, store, warning, gemm }
    }
}

impl Session {
    /// A session on this machine's CPU with the usual store, which tunes what it does not know.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Starts making a session.
    pub fn builder() -> SessionBuilder {
        SessionBuilder::default()
    }

    /// The device.
    pub fn device(&self) -> &Arc<Cpu> {
        &self.device
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Why the store is in memory alone, if it is against the caller's wish.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// The tuner of dense products.
    pub fn gemm_tuner(&self) -> &Tuner<Gemm, Cpu> {
        &self.gemm
    }

    /// C = A·B.
    pub fn gemm<'a>(
        &self,
        problem: &GemmProblem,
        a: impl Into<Slice<'a>>,
        b: impl Into<Slice<'a>>,
        c: impl Into<SliceMut<'a>>,
    ) -> Result<(), Error> {
        let args = GemmArgs { problem, a: a.into(), b: b.into(), c: c.into() };
        args.check()?;
        self.gemm.launch(problem, args, &())
    }

    /// The kernel of choice for a product, to be kept: launching it does no lookup at all.
    pub fn prepare_gemm(&self, problem: &GemmProblem) -> Result<Arc<dyn Kernel<Gemm, Cpu>>, Error> {
        self.gemm.prepare(problem)
    }
}

impl Default for Session {
    fn default() -> Self {
        Self::new()
    }
}
