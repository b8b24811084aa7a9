//! The one GPU: its context, queue, compiler, libraries and workers, each made once and handed to whoever asks.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use warplap_core::device::Device;
use warplap_core::dtype::DType;
use warplap_core::fingerprint::Fingerprint;
use warplap_core::measure::RACE;
use warplap_core::roofline::Ceilings;
use warplap_worker::artifact::Artifacts;
use warplap_worker::{Sandbox, Setup, WorkerSetup};

use crate::chip::Chip;
use crate::compile::Workshop;
use crate::compile::nvrtc::Compiler;
use crate::driver::{Context, Module, Stream};
use crate::error::CudaError;
use crate::libraries::cublaslt::LtHandles;
use crate::libraries::cudnn;
use crate::measure::neutral::Neutral;
use crate::measure::nvml::{self, Readings};
use crate::memory::Buffer;

/// One NVIDIA GPU: its primary context, a queue, a compiler, a clock.
pub struct Cuda {
    // Fields drop in order: what lives in the context goes before it.
    pub(super) modules: Mutex<HashMap<String, Arc<Module>>>,
    pub(super) neutral: OnceLock<Option<Neutral>>,
    pub(super) handles: OnceLock<Result<Arc<LtHandles>, CudaError>>,
    pub(super) dnn: OnceLock<Result<Arc<cudnn::DnnHandles>, CudaError>>,
    pub(super) queue: Arc<Stream>,
    pub(super) context: Arc<Context>,
    pub(super) chip: Chip,
    pub(super) fingerprint: Fingerprint,
    pub(super) workshop: Workshop,
    pub(super) ceilings: Mutex<Option<Arc<Ceilings>>>,
    pub(super) ordinal: i32,
    // When neighbours were last looked for, and whether one was busy.
    pub(super) neighbours: Mutex<Option<(Instant, bool)>>,
    pub(super) workers: WorkerSetup,
    pub(super) sandbox: Arc<Sandbox>,
}

impl Cuda {
    /// This device where a library of the host program races too: records say its version.
    pub fn with_library(mut self, name: &str, version: &str) -> Self {
        self.fingerprint.libraries.insert(name.to_string(), version.to_string());
        self
    }

    /// Opens a device by its ordinal. Where there is no driver, the error says so in one sentence.
    pub fn open(ordinal: i32) -> Result<Self, CudaError> {
        let (context, chip) = Context::open(ordinal)?;
        let queue = Arc::new(Stream::new(&context)?);
        let workshop = Workshop::default();
        let compiler = workshop.compiler().map_or("none".to_string(), |c| {
            let (major, minor) = c.version();
            format!("{major}.{minor}")
        });
        let fingerprint = Fingerprint::new(
            [
                ("kind", "cuda".to_string()),
                ("model", chip.name.clone()),
                ("capability", format!("{}.{}", chip.capability.0, chip.capability.1)),
                ("multiprocessors", chip.multiprocessors.to_string()),
                ("memory", format!("{} GiB", chip.gibibytes())),
                ("l2", chip.l2.to_string()),
            ],
            [
                ("race", RACE.to_string()),
                ("driver", format!("{}.{}", chip.driver.0, chip.driver.1)),
                ("nvrtc", compiler),
            ],
        );
        let (modules, ceilings, neighbours) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (workers, sandbox) = (WorkerSetup::usual(), Arc::default());
        let (handles, dnn, neutral) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Ok(Cuda {
            modules,
            neutral,
            handles,
            dnn,
            queue,
            context,
            chip,
            fingerprint,
            workshop,
            ceilings,
            ordinal,
            neighbours,
            workers,
            sandbox,
        })
    }

    /// Keeps compiled kernels in `artifacts-v1` in a directory (the store's). A folder that cannot be used is a
    /// warning: kernels are then compiled in every process.
    pub fn with_artifacts(mut self, directory: &Path) -> Self {
        match Artifacts::open(directory) {
            Ok(artifacts) => self.workshop.artifacts = Some(artifacts),
            Err(error) => tracing::warn!("compiled kernels are not kept: {error}"),
        }
        self
    }

    /// Lets this program serve as the worker in which candidates prove themselves, instead of the one found by itself
    /// (`WARPLAP_WORKER`, this program where it calls `serve_if_asked`, or a `warplap` beside it).
    pub fn with_worker(
        mut self,
        program: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Self {
        self.workers.choose(program.into(), arguments.into_iter().map(Into::into).collect());
        self
    }

    /// How long one kernel may take to compile in a compiler process; a minute by default.
    pub fn with_compile_deadline(mut self, deadline: Duration) -> Self {
        self.workshop.pool.deadline = deadline;
        self
    }

    /// Lets every candidate run in this process, as `WARPLAP_SANDBOX=off` does: one that faults takes the context with
    /// it.
    pub fn without_sandbox(mut self) -> Self {
        self.workers.send_home();
        self
    }

    /// The process in which candidates prove themselves now, if there is one.
    pub fn worker_id(&self) -> Option<u32> {
        self.sandbox.worker_id()
    }

    /// The error that made the context unusable, if there was one.
    pub fn broken(&self) -> Option<CudaError> {
        self.context.broken().cloned()
    }

    /// How many devices there are; an error says in one sentence why none can be used.
    pub fn count() -> Result<i32, CudaError> {
        Context::count()
    }

    /// Clocks, what holds them down and who else computes here, where NVML tells.
    pub fn readings(&self) -> Option<Readings> {
        nvml::read(&self.chip)
    }

    /// The compiler of its kernels.
    pub fn compiler(&self) -> Result<&Compiler, CudaError> {
        self.workshop.compiler()
    }

    /// What the driver says of it.
    pub fn chip(&self) -> &Chip {
        &self.chip
    }

    /// The queue used while tuning.
    pub fn stream(&self) -> &Stream {
        &self.queue
    }

    /// The caller's own stream, to launch on.
    ///
    /// # Safety
    /// The handle is a `CUstream` of this device's primary context and outlives what is returned.
    pub unsafe fn foreign_stream(&self, handle: usize) -> Stream {
        // SAFETY: the caller's word.
        unsafe { Stream::foreign(&self.context, handle) }
    }

    /// Its ordinal among the devices the driver shows.
    pub fn ordinal(&self) -> i32 {
        self.ordinal
    }

    /// Waits for everything queued on the device.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.context.synchronize()
    }

    /// Memory with nothing in particular in it: a kernel's workspace.
    pub fn alloc(&self, dtype: DType, len: usize) -> Result<Buffer, CudaError> {
        Buffer::new(&self.context, dtype, len)
    }

    /// As [`Cuda::alloc`], for memory that launches on [`Cuda::stream`] use and no others: it comes from the device's
    /// pool and goes back to it without waiting.
    pub fn alloc_queued(&self, dtype: DType, len: usize) -> Result<Buffer, CudaError> {
        Buffer::queued(&self.queue, dtype, len)
    }

    pub(super) fn setup(&self) -> Setup {
        let artifacts = self.workshop.artifacts().map(|a| a.directory().to_path_buf());
        Setup::prover(Self::KIND, self.ordinal, artifacts)
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// What timed launches stand behind. Where there is no compiler there is none, and no own kernel that could begin
    /// early: what libraries launch is then timed back to back.
    pub(crate) fn neutral(&self) -> Option<&Neutral> {
        let made = || Neutral::new(self).inspect_err(|e| tracing::warn!("launches are timed back to back: {e}")).ok();
        self.neutral.get_or_init(made).as_ref()
    }

    /// cuBLASLt's handle in this context.
    pub(crate) fn handles(&self) -> Result<Arc<LtHandles>, CudaError> {
        self.handles.get_or_init(|| LtHandles::open(&self.context).map(Arc::new)).clone()
    }

    /// cuDNN's handles in this context.
    pub(crate) fn dnn(&self) -> Result<Arc<cudnn::DnnHandles>, CudaError> {
        self.dnn.get_or_init(|| cudnn::DnnHandles::open(&self.context).map(Arc::new)).clone()
    }

    /// The compiled kernels, and whatever else was made once.
    pub(crate) fn workshop(&self) -> &Workshop {
        &self.workshop
    }
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Cuda {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cuda").field("chip", &self.chip).finish_non_exhaustive()
    }
}
