//! A session: one device, one store, a tuner per operation. Args come in; a Problem goes to the tuner.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use warplap_core::bucket::Bucket;
use warplap_core::device::Device;
use warplap_core::error::Error;
use warplap_core::measure::Policy;
use warplap_core::progress::Silent;
use warplap_core::settings::{Budget, Mode, Settings, Stop};
use warplap_core::store::{MemoryStore, Store, default_root, open_or_memory};
use warplap_core::tuner::{Tuned, Tuner};
use warplap_cpu::Cpu;
use warplap_cuda::Cuda;
use warplap_ops::attention::{Attention, AttentionArgs, AttentionProblem};
use warplap_ops::bsr::{Bsr, BsrArgs, BsrProblem};
use warplap_ops::gemm::{Gemm, GemmArgs, GemmProblem};
use warplap_ops::sampled::{Sampled, SampledArgs};

use crate::prepared::{Asked, Prepared};
use crate::races::{Equipped, Races};

/// One device, one store, a tuner per operation. Make one per program and share it between threads.
///
/// A session is on the CPU unless it was made by [`SessionBuilder::cuda`].
pub struct Session<D: Equipped = Cpu> {
    device: Arc<D>,
    store: Arc<dyn Store>,
    warning: Option<String>,
    gemm: Tuner<Gemm, D>,
    attention: Tuner<Attention, D>,
    bsr: Tuner<Bsr, D>,
    sampled: Tuner<Sampled, D>,
    checks: <D as Races<Bsr>>::Checks,
}

/// How a session is made.
#[derive(Default)]
pub struct SessionBuilder {
    place: Place,
    settings: Settings,
    policy: Option<Policy>,
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

    /// How candidates are measured; the device's usual way by default.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
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
        self.policy = Some(settings.policy);
        self.settings = settings;
        self
    }

    /// Threads to use; all of the machine's by default.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Makes a session on the CPU. A store that cannot be used becomes one in memory, with a warning.
    pub fn build(self) -> Session {
        let device = self.threads.map_or_else(Cpu::new, Cpu::with_threads);
        let (store, warning) = self.place.open();
        Session::on(Arc::new(device), store, warning, self.settled::<Cpu>())
    }

    /// Makes a session on an NVIDIA GPU, by its ordinal. Compiled kernels are kept beside the records. Where there is no
    /// driver or no such device, the error says so in one sentence.
    pub fn cuda(self, ordinal: i32) -> Result<Session<Cuda>, Error> {
        let mut device = Cuda::open(ordinal)?;
        let (store, warning) = self.place.open();
        if warning.is_none()
            && let Some(root) = self.place.root()
        {
            device = device.with_artifacts(&root);
        }
        Ok(Session::on(Arc::new(device), store, warning, self.settled::<Cuda>()))
    }

    fn settled<D: Device>(self) -> Settings {
        Settings { policy: self.policy.unwrap_or_else(D::usual_policy), ..self.settings }
    }
}

impl Place {
    fn open(&self) -> (Arc<dyn Store>, Option<String>) {
        let path = match self {
            Place::Memory => return (Arc::new(MemoryStore::new()), None),
            Place::Usual => None,
            Place::Directory(path) => Some(path.as_path()),
        };
        let opened = open_or_memory(path);
        (opened.store, opened.warning)
    }

    fn root(&self) -> Option<PathBuf> {
        match self {
            Place::Memory => None,
            Place::Usual => default_root(),
            Place::Directory(path) => Some(path.clone()),
        }
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
}

impl<D: Equipped> Session<D> {
    /// A session over a device and a store that are there already.
    pub fn over(device: Arc<D>, store: Arc<dyn Store>, settings: Settings) -> Self {
        Session::on(device, store, None, settings)
    }

    fn on(device: Arc<D>, store: Arc<dyn Store>, warning: Option<String>, settings: Settings) -> Self {
        let gemm = Tuner::new(device.clone(), D::catalog(), store.clone(), settings.clone());
        let attention = Tuner::new(device.clone(), D::catalog(), store.clone(), settings.clone());
        let bsr = Tuner::new(device.clone(), D::catalog(), store.clone(), settings.clone());
        let sampled = Tuner::new(device.clone(), D::catalog(), store.clone(), settings);
        Session { device, store, warning, gemm, attention, bsr, sampled, checks: Default::default() }
    }

    /// The device.
    pub fn device(&self) -> &Arc<D> {
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
    pub fn gemm_tuner(&self) -> &Tuner<Gemm, D> {
        &self.gemm
    }

    /// The tuner of attention.
    pub fn attention_tuner(&self) -> &Tuner<Attention, D> {
        &self.attention
    }

    /// The tuner of block-sparse products.
    pub fn bsr_tuner(&self) -> &Tuner<Bsr, D> {
        &self.bsr
    }

    /// The tuner of sampled products.
    pub fn sampled_tuner(&self) -> &Tuner<Sampled, D> {
        &self.sampled
    }

    /// C = A·B, on the device's own queue. To launch on another, or on memory of another library, use the tuner.
    pub fn gemm<'a>(
        &self,
        problem: &'a GemmProblem,
        a: impl Into<D::View<'a>>,
        b: impl Into<D::View<'a>>,
        c: impl Into<D::ViewMut<'a>>,
    ) -> Result<(), Error> {
        let args = GemmArgs { problem, a: a.into(), b: b.into(), c: c.into() };
        <D as Races<Gemm>>::check(&args, &self.device, &Default::default())?;
        self.gemm.launch(problem, args, self.device.queue())
    }

    /// O = softmax(scale · Q·Kᵀ + mask) · V.
    pub fn attention<'a>(
        &self,
        problem: &'a AttentionProblem,
        q: impl Into<D::View<'a>>,
        k: impl Into<D::View<'a>>,
        v: impl Into<D::View<'a>>,
        mask: Option<D::View<'a>>,
        out: impl Into<D::ViewMut<'a>>,
    ) -> Result<(), Error> {
        let args = AttentionArgs { problem, q: q.into(), k: k.into(), v: v.into(), mask, out: out.into() };
        <D as Races<Attention>>::check(&args, &self.device, &Default::default())?;
        self.attention.launch(problem, args, self.device.queue())
    }

    /// C = A·B with a block-sparse A, whose indices are checked before anything is read through them.
    pub fn bsr_matmul<'a>(
        &self,
        problem: &'a BsrProblem,
        (row_ptr, col_idx): (impl Into<D::View<'a>>, impl Into<D::View<'a>>),
        values: impl Into<D::View<'a>>,
        b: impl Into<D::View<'a>>,
        c: impl Into<D::ViewMut<'a>>,
    ) -> Result<(), Error> {
        let (row_ptr, col_idx) = (row_ptr.into(), col_idx.into());
        let (values, b, c) = (values.into(), b.into(), c.into());
        self.bsr_product(BsrArgs { problem, row_ptr, col_idx, values, b, c, add: None, place: None })
    }

    /// C = alpha·A·B + beta·C with all that a block-sparse product may have: an addend of its own, a turned A.
    pub fn bsr_product(&self, args: BsrArgs<'_, D>) -> Result<(), Error> {
        let problem = args.problem;
        <D as Races<Bsr>>::check(&args, &self.device, &self.checks)?;
        self.bsr.launch(problem, args, self.device.queue())
    }

    /// The same without a look at the indices, which the caller promises to be a block-sparse matrix. On a GPU the look
    /// costs one pass over them and a wait; a matrix that was checked once need not be checked before every product.
    pub fn bsr_promised(&self, args: BsrArgs<'_, D>) -> Result<(), Error> {
        let problem = args.problem;
        self.bsr.launch(problem, args, self.device.queue())
    }

    /// The blocks of G·Bᵀ that a pattern names: the gradient of a block-sparse A where G is that of C = A·B.
    pub fn sampled_product(&self, args: SampledArgs<'_, D>) -> Result<(), Error> {
        let problem = args.problem;
        <D as Races<Sampled>>::check(&args, &self.device, &Default::default())?;
        self.sampled.launch(problem, args, self.device.queue())
    }

    /// The kernel of choice for a problem, to be kept: launching it does no lookup at all.
    pub fn prepare<P: Asked>(&self, problem: &P) -> Result<Prepared<P::Op, D>, Error> {
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
