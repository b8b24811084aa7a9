//! The Cuda device: what `warplap_core::device::Device` asks for, on one NVIDIA GPU.

mod build;

use std::collections::HashMap;
use std::ffi::OsString;
use std::marker::PhantomData;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use warplap_core::array::Array;
use warplap_core::device::{Bounds, Compared, Device, Launch, Limits};
use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::fingerprint::Fingerprint;
use warplap_core::measure::{CacheState, Lap, Policy, Queueing};
use warplap_core::rejection::Rejection;
use warplap_core::roofline::Ceilings;
use warplap_core::sandbox::{Passed, SandboxRequest};
use warplap_core::store::Store;
use warplap_worker::artifact::Artifacts;
use warplap_worker::{Crew, Sandbox, Setup};

use crate::ceilings;
use crate::chip::Chip;
use crate::clock::CudaLap;
use crate::compile::Workshop;
use crate::cublaslt::Desk;
use crate::driver::{Context, Module, Relaxed, Stream};
use crate::error::CudaError;
use crate::memory::{Buffer, View, ViewMut};
use crate::nvml::{self, Readings};
use crate::nvrtc::Compiler;

/// The note in the store that holds the ceilings.
const CEILINGS: &str = "ceilings";

/// How long a reading of the neighbours counts.
const READING: Duration = Duration::from_millis(300);

/// One NVIDIA GPU: its primary context, a queue, a compiler, a clock.
pub struct Cuda {
    // Fields drop in order: what lives in the context goes before it.
    modules: Mutex<HashMap<String, Arc<Module>>>,
    desk: OnceLock<Result<Arc<Desk>, CudaError>>,
    queue: Arc<Stream>,
    context: Arc<Context>,
    chip: Chip,
    fingerprint: Fingerprint,
    workshop: Workshop,
    ceilings: Mutex<Option<Arc<Ceilings>>>,
    ordinal: i32,
    // When neighbours were last looked for, and whether one was busy.
    neighbours: Mutex<Option<(Instant, bool)>>,
    crew: Crew,
    sandbox: Arc<Sandbox>,
}

impl Cuda {
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
                ("memory", chip.memory.to_string()),
                ("l2", chip.l2.to_string()),
            ],
            [
                ("warplap", env!("CARGO_PKG_VERSION").to_string()),
                ("driver", format!("{}.{}", chip.driver.0, chip.driver.1)),
                ("nvrtc", compiler),
            ],
        );
        let (modules, ceilings, neighbours) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (crew, sandbox, desk) = (Crew::usual(), Arc::default(), OnceLock::new());
        Ok(Cuda {
            modules,
            desk,
            queue,
            context,
            chip,
            fingerprint,
            workshop,
            ceilings,
            ordinal,
            neighbours,
            crew,
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
        self.crew.choose(program.into(), arguments.into_iter().map(Into::into).collect());
        self
    }

    /// How long one kernel may take to compile in a compiler process; a minute by default.
    pub fn with_compile_deadline(mut self, deadline: Duration) -> Self {
        self.workshop.pool.deadline = deadline;
        self
    }

    /// Lets every candidate run in this process, as `WARPLAP_SANDBOX=off` does: one that faults takes the context with it.
    pub fn without_sandbox(mut self) -> Self {
        self.crew.send_home();
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

    /// As [`Cuda::alloc`], for memory that launches on [`Cuda::stream`] use and no others: it comes from the device's pool
    /// and goes back to it without waiting.
    pub fn alloc_queued(&self, dtype: DType, len: usize) -> Result<Buffer, CudaError> {
        Buffer::queued(&self.queue, dtype, len)
    }

    fn setup(&self) -> Setup {
        let artifacts = self.workshop.artifacts().map(|a| a.directory().to_path_buf());
        Setup::prover(Self::KIND, self.ordinal, artifacts)
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// cuBLASLt's handle in this context.
    pub(crate) fn desk(&self) -> Result<Arc<Desk>, CudaError> {
        self.desk.get_or_init(|| Desk::open(&self.context).map(Arc::new)).clone()
    }

    fn keep_ceilings(&self, ceilings: &Ceilings, store: &Store) {
        if let Ok(note) = serde_json::to_value(ceilings)
            && let Err(e) = store.put_note(&self.fingerprint.slug(), CEILINGS, &note)
        {
            tracing::warn!("the measured ceilings were not kept: {e}");
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Cuda {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cuda").field("chip", &self.chip).finish_non_exhaustive()
    }
}

impl Device for Cuda {
    const KIND: &'static str = "cuda";
    const LAUNCH_IS_CALL: bool = false;

    type Buffer = Buffer;
    type View<'a> = View<'a>;
    type ViewMut<'a> = ViewMut<'a>;
    type Queue = Stream;

    fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    fn limits(&self) -> Limits {
        Limits {
            threads: 1024,
            workspace: self.chip.memory / 2,
            shared_memory: self.chip.shared_memory,
            registers: 255,
        }
    }

    fn ceilings(&self) -> Option<Arc<Ceilings>> {
        locked(&self.ceilings).clone()
    }

    fn get_ready(&self, store: &Store) {
        // Its library takes a while to open, and is first asked after a race.
        std::thread::spawn(nvml::open);
        let mut known = locked(&self.ceilings);
        if known.is_some() {
            return;
        }
        let kept = store.note(&self.fingerprint.slug(), CEILINGS).and_then(|note| serde_json::from_value(note).ok());
        let found = kept.or_else(|| match ceilings::measure(self) {
            Ok(measured) => {
                self.keep_ceilings(&measured, store);
                Some(measured)
            }
            Err(error) => {
                tracing::warn!("the ceilings could not be measured: {error}");
                None
            }
        });
        *known = found.map(Arc::new);
    }

    fn measure_again(&self, store: &Store) {
        let mut known = locked(&self.ceilings);
        let Ok(measured) = ceilings::measure(self) else { return };
        let raised = match &*known {
            Some(old) => measured.raised(old),
            None => measured,
        };
        self.keep_ceilings(&raised, store);
        *known = Some(Arc::new(raised));
    }

    fn queue(&self) -> &Stream {
        &self.queue
    }

    fn upload(&self, array: &Array) -> Result<Buffer, Error> {
        let mut buffer = Buffer::new(&self.context, array.dtype(), array.len())?;
        buffer.fill(array, &self.queue)?;
        Ok(buffer)
    }

    fn upload_queued(&self, array: &Array) -> Result<Buffer, Error> {
        let mut buffer = Buffer::queued(&self.queue, array.dtype(), array.len())?;
        buffer.fill(array, &self.queue)?;
        Ok(buffer)
    }

    fn write(&self, buffer: &mut Buffer, array: &Array) -> Result<(), Error> {
        if buffer.len != array.len() || buffer.dtype != array.dtype() {
            return Err(Error::Device(format!(
                "a buffer of {} {} cannot hold {} {}",
                buffer.len,
                buffer.dtype,
                array.len(),
                array.dtype()
            )));
        }
        Ok(buffer.fill(array, &self.queue)?)
    }

    fn copy(&self, to: &mut Buffer, from: &Buffer) -> Result<(), Error> {
        if to.len != from.len || to.dtype != from.dtype {
            return Err(Error::Device(format!("{} {} are no {} {}", from.len, from.dtype, to.len, to.dtype)));
        }
        // SAFETY: two buffers, as long as each other.
        Ok(unsafe { self.queue.copy_across(to.address, from.address, from.len * from.dtype.bytes()) }?)
    }

    fn download(&self, buffer: &Buffer) -> Result<Array, Error> {
        Ok(buffer.read(&self.queue)?)
    }

    fn compare(&self, output: &Buffer, right: &Buffer, bounds: Bounds) -> Result<Compared, Error> {
        self.compare_there(output, right, bounds)
    }

    fn seal(&self, buffer: &Buffer) -> Result<u64, Error> {
        self.seal_of(buffer)
    }

    fn view<'a>(&self, buffer: &'a Buffer, elements: Range<usize>) -> View<'a> {
        let (address, len) = within(buffer, elements);
        View { address, len, dtype: buffer.dtype, borrow: PhantomData }
    }

    fn view_mut<'a>(&self, buffer: &'a mut Buffer, elements: Range<usize>) -> ViewMut<'a> {
        let (address, len) = within(buffer, elements);
        ViewMut { address, len, dtype: buffer.dtype, borrow: PhantomData }
    }

    fn usual_policy() -> Policy {
        // A graph shows the device's own time: launched one by one, a short kernel is as slow as the host.
        Policy { queueing: Queueing::Graph, ..Policy::default() }
    }

    fn sets(&self, policy: Policy, footprint: usize) -> usize {
        match policy.cache {
            CacheState::Hot => 1,
            // Twice the L2, so that nothing of a set is left when its turn comes again.
            CacheState::Cold => (2 * self.chip.l2 as usize / footprint.max(1)).clamp(1, 64) + 1,
        }
    }

    fn lap<'k>(
        &'k self,
        policy: Policy,
        sets: usize,
        launch: Launch<'k, Self>,
    ) -> Result<Box<dyn Lap + 'k>, Rejection> {
        Ok(Box::new(CudaLap::new(self, policy, sets, launch)?))
    }

    fn sandbox(&self, request: &SandboxRequest) -> Option<Result<Passed, Rejection>> {
        self.sandbox.prove(&self.crew, || self.setup(), request)
    }

    fn joules(&self) -> Option<f64> {
        nvml::joules(&self.chip)
    }

    fn call_worker(&self) {
        let (sandbox, crew, setup) = (self.sandbox.clone(), self.crew.clone(), self.setup());
        // Who cannot be started now is said when somebody is to be proved.
        std::thread::spawn(move || sandbox.call(&crew, setup));
    }

    fn sandboxes(&self) -> bool {
        !self.crew.is_off()
    }

    fn builders(&self) -> usize {
        if self.crew.is_off() {
            // A thread of its own still lets the GPU measure meanwhile; the compiler's stages exclude each other.
            return 1;
        }
        // One core is left for whoever proves and measures; a compiler takes a hundred megabytes.
        std::thread::available_parallelism().map_or(1, usize::from).saturating_sub(1).clamp(1, 32)
    }

    fn busy(&self, queue: &Stream) -> Option<String> {
        // A capture refuses what building and measuring need (allocating, waiting), whichever stream it is on.
        match queue.is_capturing() {
            Ok(false) => None,
            Ok(true) => Some("the stream is being captured into a graph".into()),
            Err(error) => Some(error.to_string()),
        }
    }

    fn beside_capture<R>(&self, work: impl FnOnce() -> R) -> R {
        let _relaxed = Relaxed::new(&self.context);
        work()
    }

    fn contended(&self) -> bool {
        // A reading takes 15 ms and looks back over a second.
        let mut last = locked(&self.neighbours);
        match *last {
            Some((at, busy)) if at.elapsed() < READING => busy,
            _ => {
                let busy = self.readings().is_some_and(|r| r.contended());
                *last = Some((Instant::now(), busy));
                busy
            }
        }
    }

    fn supports(&self, dtype: DType) -> bool {
        matches!(dtype, DType::F32 | DType::F16 | DType::Bf16)
    }
}

/// Address and length of elements of a buffer, cut to what it holds.
fn within(buffer: &Buffer, elements: Range<usize>) -> (u64, usize) {
    let end = elements.end.min(buffer.len);
    let start = elements.start.min(end);
    (buffer.address + (start * buffer.dtype.bytes()) as u64, end - start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_driver_the_error_is_one_clear_sentence() {
        match Cuda::open(0) {
            Err(error @ (CudaError::NoDriver | CudaError::NoDevice { .. } | CudaError::Driver { .. })) => {
                let text = error.to_string();
                assert!(!text.contains('\n') && (text.contains("CUDA") || text.contains("cu")), "{text}");
            }
            Err(other) => panic!("{other}"),
            Ok(cuda) => assert!(cuda.busy(cuda.queue()).is_none()),
        }
        assert!(Cuda::open(-1).is_err() && Cuda::open(1 << 20).is_err());
    }
}
