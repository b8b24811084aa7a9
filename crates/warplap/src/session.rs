//! A session: one device, one store, a tuner per operation. Args come in; a Problem goes to the tuner.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use warplap_core::bucket::Bucket;
use warplap_core::error::Error;
use warplap_core::measure::Policy;
use warplap_core::progress::Silent;
use warplap_core::settings::{Budget, Mode, Settings, Stop};
use warplap_core::store::{MemoryStore, Store, open_or_memory};
use warplap_core::tuner::{Tuned, Tuner};
use warplap_cpu::{Cpu, Slice, SliceMut};
use warplap_ops::attention::{self, Attention, AttentionArgs, AttentionProblem};
use warplap_ops::bsr::{self, Bsr, BsrArgs, BsrProblem};
use warplap_ops::gemm::{self, Gemm, GemmArgs, GemmProblem};

use crate::prepared::{Asked, Prepared};

/// One device, one store, a tuner per operation. Make one per program and share it between threads.
pub struct Session {
    device: Arc<Cpu>,
    store: Arc<dyn Store>,
    warning: Option<String>,
    gemm: Tuner<Gemm, Cpu>,
    attention: Tuner<Attention, Cpu>,
    bsr: Tuner<Bsr, Cpu>,
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
        let attention = Tuner::new(device.clone(), attention::cpu::catalog(), store.clone(), settings.clone());
        let bsr = Tuner::new(device.clone(), bsr::cpu::catalog(), store.clone(), settings);
        Session { device, store, warning, gemm, attention, bsr }
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

    /// The tuner of attention.
    pub fn attention_tuner(&self) -> &Tuner<Attention, Cpu> {
        &self.attention
    }

    /// The tuner of block-sparse products.
    pub fn bsr_tuner(&self) -> &Tuner<Bsr, Cpu> {
        &self.bsr
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

    /// O = softmax(scale · Q·Kᵀ + mask) · V.
    pub fn attention<'a>(
        &self,
        problem: &AttentionProblem,
        q: impl Into<Slice<'a>>,
        k: impl Into<Slice<'a>>,
        v: impl Into<Slice<'a>>,
        mask: Option<Slice<'a>>,
        out: impl Into<SliceMut<'a>>,
    ) -> Result<(), Error> {
        let args = AttentionArgs { problem, q: q.into(), k: k.into(), v: v.into(), mask, out: out.into() };
        args.check()?;
        self.attention.launch(problem, args, &())
    }

    /// C = A·B with a block-sparse A, whose indices are checked before anything is read through them.
    pub fn bsr_matmul<'a>(
        &self,
        problem: &BsrProblem,
        (row_ptr, col_idx): (&'a [i32], &'a [i32]),
        values: impl Into<Slice<'a>>,
        b: impl Into<Slice<'a>>,
        c: impl Into<SliceMut<'a>>,
    ) -> Result<(), Error> {
        let (row_ptr, col_idx) = (row_ptr.into(), col_idx.into());
        let args = BsrArgs { problem, row_ptr, col_idx, values: values.into(), b: b.into(), c: c.into() };
        args.check()?;
        self.bsr.launch(problem, args, &())
    }

    /// The kernel of choice for a problem, to be kept: launching it does no lookup at all.
    pub fn prepare<P: Asked>(&self, problem: &P) -> Result<Prepared<P::Op>, Error> {
        P::tuner(self).choose(problem).map(Prepared::from)
    }

    /// Tunes a problem's key, or answers from the store.
    pub fn tune<P: Asked>(&self, problem: &P) -> Result<Tuned, Error> {
        P::tuner(self).tune(problem, &Silent)
    }
}

impl Default for Session {
    fn default() -> Self {
        Self::new()
    }
}
