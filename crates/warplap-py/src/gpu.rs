//! NVIDIA GPUs: tensors in device memory go to the native kernels, on torch's current stream. Sessions are opened when the
//! first tensor of a device comes by.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use pyo3::exceptions::{PyNotImplementedError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use warplap::core::device::Device;
use warplap::core::space::Config;
use warplap::core::store::{Store, default_root};
use warplap::core::variant::Kernel;
use warplap::cuda::{View, ViewMut};
use warplap::{Cuda, Gemm, GemmArgs, GemmProblem, Mode, Op, Session, Settings};

use crate::failure::{raise, rejected};
use crate::state::{self, MODES};
use crate::torch::Torch;
use crate::watch::{Watch, ended};

/// Devices with a higher ordinal are not looked for.
const DEVICES: usize = 16;

/// The program in which candidates prove themselves, and its arguments: this interpreter with this package.
static WORKER: OnceLock<(PathBuf, Vec<String>)> = OnceLock::new();

/// Says which program serves as the worker.
#[pyfunction]
pub(crate) fn set_worker(program: PathBuf, arguments: Vec<String>) {
    let _ = WORKER.set((program, arguments));
}

/// Serves as a worker and never returns, if this process was started as one.
#[pyfunction]
pub(crate) fn serve_if_asked(py: Python<'_>) {
    py.detach(warplap::worker::serve_if_asked);
}

/// A session for each device and mode, opened when first needed.
#[derive(Default)]
pub(crate) struct Gpus([[OnceLock<Session<Cuda>>; MODES.len()]; DEVICES]);

/// The devices of the process: one context each, whatever the store or the mode.
fn device(ordinal: usize) -> PyResult<Arc<Cuda>> {
    static OPENED: [OnceLock<Result<Arc<Cuda>, String>>; DEVICES] = [const { OnceLock::new() }; DEVICES];
    let missing = || PyValueError::new_err(format!("device: is cuda:{ordinal}, expected one below {DEVICES}"));
    let opened = OPENED.get(ordinal).ok_or_else(missing)?.get_or_init(|| {
        let mut device = Cuda::open(ordinal as i32).map_err(|e| e.to_string())?;
        if let Some((program, arguments)) = WORKER.get().filter(|_| std::env::var_os("WARPLAP_WORKER").is_none()) {
            device = device.with_worker(program, arguments);
        }
        Ok(Arc::new(match default_root() {
            Some(root) => device.with_artifacts(&root),
            None => device,
        }))
    });
    opened.clone().map_err(PyNotImplementedError::new_err)
}

impl Gpus {
    pub(crate) fn session(
        &self,
        ordinal: usize,
        mode: usize,
        store: &Arc<dyn Store>,
        settings: &Settings,
    ) -> PyResult<&Session<Cuda>> {
        let missing = || PyValueError::new_err(format!("device: is cuda:{ordinal}, expected one below {DEVICES}"));
        let slot = &self.0.get(ordinal).ok_or_else(missing)?[mode];
        if let Some(session) = slot.get() {
            return Ok(session);
        }
        let device = device(ordinal)?;
        let settings = Settings { mode: MODES[mode], policy: Cuda::usual_policy(), ..settings.clone() };
        Ok(slot.get_or_init(|| Session::over(device, store.clone(), settings)))
    }
}

/// Queues a product of matrices in device memory on the current stream of torch, or on the default one.
pub(crate) fn gemm(py: Python<'_>, ordinal: usize, problem: &GemmProblem, [a, b, c]: [usize; 3]) -> PyResult<()> {
    let state = state::state();
    let session = state.gpu(ordinal)?;
    let stream = Torch::here(py).and_then(|t| t.stream(ordinal as i32)).unwrap_or(0);
    // SAFETY: the exchange API gave torch's current stream of this device; the default stream is always there.
    let queue = unsafe { session.device().foreign_stream(stream) };
    // SAFETY: the caller holds references to the tensors behind the addresses, whose spans were checked; torch keeps
    // memory that a stream still uses from others on that stream.
    let args = || unsafe {
        let a = View::from_raw(a as u64, problem.dtype, problem.a_len());
        let b = View::from_raw(b as u64, problem.dtype, problem.b_len());
        GemmArgs::<Cuda> { problem, a, b, c: ViewMut::from_raw(c as u64, problem.dtype, problem.c_len()) }
    };
    let launch = |kernel: &(dyn Kernel<Gemm, Cuda> + 'static)| kernel.launch(args(), &queue);
    let tuner = session.gemm_tuner();
    match tuner.with_known(problem, launch) {
        Ok(done) => done.map_err(|e| rejected(&e)),
        // Nobody knows it yet: others may go on while it is raced.
        Err(launch) => {
            let chosen = ended(py.detach(|| tuner.choose_on(problem, &queue)))?;
            launch(&*chosen.kernel).map_err(|e| rejected(&e))
        }
    }
}

/// One GPU by hand: problems as texts, memory as addresses. For benchmarks and for callers with no tensors.
#[pyclass(frozen)]
pub(crate) struct Gpu {
    ordinal: usize,
}

#[pymethods]
impl Gpu {
    #[new]
    #[pyo3(signature = (ordinal=0))]
    fn new(ordinal: usize) -> PyResult<Self> {
        device(ordinal)?;
        Ok(Gpu { ordinal })
    }

    /// Tunes a problem, or answers from the store; gives the record as JSON.
    #[pyo3(signature = (problem, *, budget=None, again=false, cold=false))]
    fn tune(&self, py: Python<'_>, problem: &str, budget: Option<f64>, again: bool, cold: bool) -> PyResult<String> {
        let (tuner, text, stop) = self.tuner(problem, budget, again, cold)?;
        let watch = Watch { stop, tell: None };
        let outcome = py.detach(|| tuner.tune(&text, &watch));
        Ok(crate::road::tuned(&ended(outcome)?).to_string())
    }

    /// A kernel of a dense product, to be launched by address: the winner, or one that is named.
    #[pyo3(signature = (problem, *, variant=None, config=None, cold=false))]
    fn gemm(
        &self,
        py: Python<'_>,
        problem: &str,
        variant: Option<&str>,
        config: Option<&str>,
        cold: bool,
    ) -> PyResult<GpuGemm> {
        let problem = Gemm::parse(problem).map_err(|e| PyValueError::new_err(e.to_string()))?;
        let state = state::state();
        let session = state.gpu(self.ordinal)?;
        let device = session.device().clone();
        let (kernel, name): (Arc<dyn Kernel<Gemm, Cuda>>, String) = match variant {
            None => {
                let settings = Settings { policy: policy(cold), ..session.gemm_tuner().settings().clone() };
                let session = Session::over(device.clone(), state.store.clone(), settings);
                let chosen = py.detach(|| session.gemm_tuner().choose(&problem)).map_err(raise)?;
                (chosen.kernel, chosen.candidate.to_string())
            }
            Some(id) => {
                let unknown = || PyValueError::new_err(format!("variant: '{id}' is not known"));
                let variant = session.gemm_tuner().catalog().find(id).ok_or_else(unknown)?;
                let config = match config {
                    Some(text) => Config::parse(text).map_err(|e| PyValueError::new_err(format!("config: {e}")))?,
                    None => variant.space(&problem, &device).default_config().unwrap_or_default(),
                };
                let built = py.detach(|| variant.build(&problem, &config, &device)).map_err(|e| rejected(&e))?;
                (built.into(), format!("{id}[{config}]"))
            }
        };
        Ok(GpuGemm { problem, kernel, name, device })
    }
}

fn policy(cold: bool) -> warplap::core::measure::Policy {
    let mut policy = Cuda::usual_policy();
    if cold {
        policy.cache = warplap::core::measure::CacheState::Cold;
    }
    policy
}

type Opened = (Box<dyn warplap::any::AnyTuner>, String, warplap::Stop);

impl Gpu {
    fn tuner(&self, problem: &str, budget: Option<f64>, again: bool, cold: bool) -> PyResult<Opened> {
        let (op, text) = warplap::any::problem(problem, None).map_err(|e| PyValueError::new_err(e.to_string()))?;
        let state = state::state();
        let stop = warplap::Stop::default();
        let mut settings = Settings {
            mode: Mode::Tune,
            policy: policy(cold),
            again,
            yardsticks: true,
            stop: stop.clone(),
            ..state.settings.clone()
        };
        settings.budget.seconds = budget.unwrap_or(settings.budget.seconds);
        let device = warplap::any::AnyDevice::Cuda(device(self.ordinal)?);
        Ok((op.open(&device, state.store.clone(), settings), text, stop))
    }
}

/// A built dense product.
#[pyclass(frozen)]
pub(crate) struct GpuGemm {
    problem: GemmProblem,
    kernel: Arc<dyn Kernel<Gemm, Cuda>>,
    name: String,
    device: Arc<Cuda>,
}

#[pymethods]
impl GpuGemm {
    /// Variant and config.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Queues one launch on a stream, by the addresses of A, B and C. The caller vouches for them: nothing can be checked.
    fn launch(&self, a: u64, b: u64, c: u64, stream: usize) -> PyResult<()> {
        let p = &self.problem;
        // SAFETY: the caller's word, as the method says.
        let (args, queue) = unsafe {
            let (a, b) = (View::from_raw(a, p.dtype, p.a_len()), View::from_raw(b, p.dtype, p.b_len()));
            let args = GemmArgs::<Cuda> { problem: p, a, b, c: ViewMut::from_raw(c, p.dtype, p.c_len()) };
            (args, self.device.foreign_stream(stream))
        };
        self.kernel.launch(args, &queue).map_err(|e| PyRuntimeError::new_err(e.to_string()))
    }
}
