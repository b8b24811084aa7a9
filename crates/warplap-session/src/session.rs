//! A session: one device, one store, a tuner per operation. A Problem and Args come in; they go to the tuner.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use warplap_core::arg::Arg;
use warplap_core::bucket::Bucket;
use warplap_core::by_type::ByType;
use warplap_core::catalog::Raced;
use warplap_core::device::Device;
use warplap_core::engine::{Tuned, Tuner};
use warplap_core::error::Error;
use warplap_core::measure::Policy;
use warplap_core::op::Op;
use warplap_core::problem::Problem;
use warplap_core::progress::Silent;
use warplap_core::settings::{Budget, Mode, Settings, Stop};
#[cfg(feature = "cuda")]
use warplap_core::store::{Address, default_root};
use warplap_core::store::{Store, open_or_memory};
use warplap_cpu::Cpu;
#[cfg(feature = "cuda")]
use warplap_cuda::Cuda;
use warplap_ops::attention::{self, AttentionProblem};
use warplap_ops::bsr::BsrProblem;
use warplap_ops::gemm::{self, GemmProblem};

use crate::prepared::Prepared;

/// One device, one store, a tuner per operation. Make one per program and share it between threads.
///
/// A session is on the CPU unless it was made by [`SessionBuilder::cuda`].
pub struct Session<D: Device = Cpu> {
    device: Arc<D>,
    store: Store,
    warning: Option<String>,
    settings: Settings,
    tuners: ByType,
}

/// How a session is made.
#[derive(Default)]
pub struct SessionBuilder {
    place: Keeping,
    settings: Settings,
    policy: Option<Policy>,
    threads: Option<usize>,
    pool: Option<Arc<rayon::ThreadPool>>,
}

#[derive(Default)]
enum Keeping {
    #[default]
    Usual,
    Named(PathBuf),
    Memory,
}

impl SessionBuilder {
    /// Keeps records in this directory, or at this URL (`file:`, `memory:`, or a registered scheme), instead of the
    /// usual place.
    pub fn store(mut self, named: impl AsRef<Path>) -> Self {
        self.place = Keeping::Named(named.as_ref().to_path_buf());
        self
    }

    /// Keeps records in memory alone.
    pub fn in_memory(mut self) -> Self {
        self.place = Keeping::Memory;
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

    /// Runs on the threads of a pool that the program has already, instead of making some.
    pub fn pool(mut self, pool: Arc<rayon::ThreadPool>) -> Self {
        self.pool = Some(pool);
        self
    }

    /// Makes a session on the CPU. A store that cannot be used becomes one in memory, with a warning.
    pub fn build(self) -> Session {
        let device = match (&self.pool, self.threads) {
            (Some(pool), _) => Cpu::with_pool(pool.clone()),
            (None, Some(threads)) => Cpu::with_threads(threads),
            (None, None) => Cpu::new(),
        };
        let (store, warning) = self.place.open();
        Session::on(Arc::new(device), store, warning, self.settled::<Cpu>())
    }

    /// Makes a session on an NVIDIA GPU, by its ordinal. Compiled kernels are kept beside the records. Where there is
    /// no driver or no such device, the error says so in one sentence.
    #[cfg(feature = "cuda")]
    pub fn cuda(self, ordinal: i32) -> Result<Session<Cuda>, Error> {
        let (store, warning) = self.place.open();
        let root = self.place.root().filter(|_| warning.is_none());
        let device = crate::any::cuda(ordinal, root.as_deref())?;
        Ok(Session::on(device, store, warning, self.settled::<Cuda>()))
    }

    fn settled<D: Device>(self) -> Settings {
        Settings { policy: self.policy.unwrap_or_else(D::usual_policy), ..self.settings }
    }
}

impl Keeping {
    fn open(&self) -> (Store, Option<String>) {
        let named = match self {
            Keeping::Memory => return (Store::memory(), None),
            Keeping::Usual => None,
            Keeping::Named(named) => Some(named.as_path()),
        };
        let opened = open_or_memory(named);
        (opened.store, opened.warning)
    }

    #[cfg(feature = "cuda")]
    fn root(&self) -> Option<PathBuf> {
        match self {
            Keeping::Memory => None,
            Keeping::Usual => default_root(),
            Keeping::Named(named) => Address::of(named).ok()?.near(),
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

impl<D: Device> Session<D> {
    /// A session over a device and a store that are there already.
    pub fn over(device: Arc<D>, store: Store, settings: Settings) -> Self {
        Session::on(device, store, None, settings)
    }

    fn on(device: Arc<D>, store: Store, warning: Option<String>, settings: Settings) -> Self {
        // From here on records are held to the operations there are.
        crate::any::operations();
        Session { device, store, warning, settings, tuners: ByType::default() }
    }

    /// The device.
    pub fn device(&self) -> &Arc<D> {
        &self.device
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// How its tuners behave.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Why the store is in memory alone, if it is against the caller's wish.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// The one thing of a type that whatever is made of this session shares.
    #[cfg(feature = "graph")]
    pub(crate) fn shared<T: Send + Sync + 'static>(&self, make: impl Fn() -> T) -> &T {
        self.tuners.get(make)
    }

    /// The tuner of an operation: of this crate, or of your own where it is [`Raced`] on the device.
    #[inline]
    pub fn tuner<O: Raced<D>>(&self) -> &Tuner<O, D> {
        let (device, store) = (&self.device, &self.store);
        self.tuners.get(|| Tuner::new(device.clone(), O::catalog(), store.clone(), self.settings.clone()))
    }

    /// Does a problem's operation on the device's own queue, on one argument a slot of its signature. To launch on
    /// another queue, or on memory of another library, use the tuner.
    pub fn run<P: Problem>(&self, problem: &P, args: &mut [Arg<'_, D>]) -> Result<(), Error>
    where
        P::Op: Raced<D>,
    {
        P::Op::check(problem, args, &self.device)?;
        self.promised(problem, args)
    }

    /// The same without a look at what a signature cannot say (the indices of a block-sparse matrix), which the caller
    /// promises to be right. On a GPU the look costs one pass over them and a wait; a matrix that was checked once need
    /// not be checked before every product.
    pub fn promised<P: Problem>(&self, problem: &P, args: &mut [Arg<'_, D>]) -> Result<(), Error>
    where
        P::Op: Raced<D>,
    {
        self.tuner::<P::Op>().launch(problem, args, self.device.queue())
    }

    /// C = A·B, with the activation that the problem says; with a bias use [`Session::run`].
    pub fn gemm<'a>(
        &self,
        problem: &GemmProblem,
        a: impl Into<D::View<'a>>,
        b: impl Into<D::View<'a>>,
        c: impl Into<D::ViewMut<'a>>,
    ) -> Result<(), Error>
    where
        <GemmProblem as Problem>::Op: Raced<D>,
    {
        self.run(
            problem,
            &mut filled::<D, { gemm::SLOTS }>([Arg::Read(a.into()), Arg::Read(b.into()), Arg::Write(c.into())]),
        )
    }

    /// O = softmax(scale · Q·Kᵀ + mask) · V; with anything else a problem may have use [`Session::run`].
    ///
    /// ```
    /// # use warplap::{AttentionProblem, DType, Mode, Session};
    /// let session = Session::builder().in_memory().mode(Mode::Off).build();
    /// let (ones, mut out) = (vec![1f32; 2 * 4 * 8], vec![0f32; 2 * 4 * 8]);
    /// let problem = AttentionProblem::new(1, 2, 4, 4, 8, DType::F32);
    /// session.attention(&problem, &ones[..], &ones[..], &ones[..], None, &mut out[..])?;
    /// assert!(out.iter().all(|x| (x - 1.0).abs() < 1e-6));
    /// # Ok::<(), warplap::Error>(())
    /// ```
    pub fn attention<'a>(
        &self,
        problem: &AttentionProblem,
        q: impl Into<D::View<'a>>,
        k: impl Into<D::View<'a>>,
        v: impl Into<D::View<'a>>,
        mask: Option<D::View<'a>>,
        out: impl Into<D::ViewMut<'a>>,
    ) -> Result<(), Error>
    where
        <AttentionProblem as Problem>::Op: Raced<D>,
    {
        let (q, k, v) = (Arg::Read(q.into()), Arg::Read(k.into()), Arg::Read(v.into()));
        self.run(
            problem,
            &mut filled::<D, { attention::SLOTS }>([q, k, v, Arg::optional(mask), Arg::Write(out.into())]),
        )
    }

    /// C = A·B with a block-sparse A, whose indices are checked before anything is read through them. With an addend of
    /// its own or a turned A use [`Session::run`].
    pub fn bsr_matmul<'a>(
        &self,
        problem: &BsrProblem,
        (row_ptr, col_idx): (impl Into<D::View<'a>>, impl Into<D::View<'a>>),
        values: impl Into<D::View<'a>>,
        b: impl Into<D::View<'a>>,
        c: impl Into<D::ViewMut<'a>>,
    ) -> Result<(), Error>
    where
        <BsrProblem as Problem>::Op: Raced<D>,
    {
        let (row_ptr, col_idx) = (Arg::Read(row_ptr.into()), Arg::Read(col_idx.into()));
        let (values, b) = (Arg::Read(values.into()), Arg::Read(b.into()));
        self.run(problem, &mut [row_ptr, col_idx, values, b, Arg::Write(c.into()), Arg::Absent, Arg::Absent])
    }

    /// The kernel of choice for a problem, to be kept: launching it does no lookup at all.
    pub fn prepare<P: Problem>(&self, problem: &P) -> Result<Prepared<D>, Error>
    where
        P::Op: Raced<D>,
    {
        let chosen = self.tuner::<P::Op>().choose(problem)?;
        Ok(Prepared::new(chosen, P::Op::text(problem)))
    }

    /// Tunes a problem's key, or answers from the store.
    pub fn tune<P: Problem>(&self, problem: &P) -> Result<Tuned, Error>
    where
        P::Op: Raced<D>,
    {
        self.tuner::<P::Op>().tune(problem, &Silent)
    }
}

impl Default for Session {
    fn default() -> Self {
        Self::new()
    }
}

/// As many arguments as an operation has slots: those given, and nothing for the others.
fn filled<'a, D: Device, const SLOTS: usize>(inputs: impl IntoIterator<Item = Arg<'a, D>>) -> [Arg<'a, D>; SLOTS] {
    let mut inputs = inputs.into_iter();
    std::array::from_fn(|_| inputs.next().unwrap_or_default())
}
