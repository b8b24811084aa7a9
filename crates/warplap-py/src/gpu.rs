//! NVIDIA GPUs: tensors in device memory go to the native kernels, on torch's current stream. Desks are set up
//! when the first tensor of a device comes by.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use pyo3::exceptions::{PyNotImplementedError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use warplap::core::device::Device;
use warplap::core::space::Config;
use warplap::core::store::default_root;
use warplap::core::variant::Kernel;
use warplap::cuda::{Stream, View, ViewMut};
use warplap::ops::{bsr, gemm, sampled};
use warplap::{Bsr, BsrArgs, BsrProblem, Cuda, DType, Gemm, GemmArgs, GemmProblem, Mode, Op, Sampled, Settings, Tuner};

use crate::failure::{raise, rejected};
use crate::state::{self, Desk, MODES, State};
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
    py.detach(|| warplap::worker::Worker::new().with_ground(warplap_spec::ground()).serve_if_asked());
}

/// The desks of one GPU.
pub(crate) struct GpuDesks {
    pub(crate) device: Arc<Cuda>,
    pub(crate) gemm: Desk<Gemm, Cuda>,
    pub(crate) bsr: Desk<Bsr, Cuda>,
    pub(crate) sampled: Desk<Sampled, Cuda>,
}

/// Desks for each device and mode, set up when first needed.
#[derive(Default)]
pub(crate) struct Gpus([[OnceLock<GpuDesks>; MODES.len()]; DEVICES]);

/// The devices of the process: one context each, whatever the store or the mode.
pub(crate) fn device(ordinal: usize) -> PyResult<Arc<Cuda>> {
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
    #[inline]
    pub(crate) fn desks(&self, ordinal: usize, mode: usize, state: &State) -> PyResult<&GpuDesks> {
        let missing = || PyValueError::new_err(format!("device: is cuda:{ordinal}, expected one below {DEVICES}"));
        let slot = &self.0.get(ordinal).ok_or_else(missing)?[mode];
        if let Some(desks) = slot.get() {
            return Ok(desks);
        }
        let device = device(ordinal)?;
        let settings = || Settings { mode: MODES[mode], ..state.gpu_settings() };
        let store = || state.store.clone();
        Ok(slot.get_or_init(|| GpuDesks {
            gemm: Desk::new(state.tuner(device.clone(), gemm::cuda::catalog(), store(), settings())),
            bsr: Desk::new(state.tuner(device.clone(), bsr::cuda::catalog(), store(), settings())),
            sampled: Desk::new(state.tuner(device.clone(), sampled::cuda::catalog(), store(), settings())),
            device,
        }))
    }
}

impl GpuDesks {
    /// The current stream of torch on this device, or the default one.
    #[inline]
    pub(crate) fn queue(&self, py: Python<'_>) -> Stream {
        let ordinal = self.device.ordinal();
        let stream = Torch::here(py).and_then(|t| t.stream(ordinal)).unwrap_or(0);
        // SAFETY: the exchange API gave torch's current stream of this device; the default stream is always there.
        unsafe { self.device.foreign_stream(stream) }
    }
}

/// Queues a product of matrices in device memory on the current stream of torch, or on the default one.
pub(crate) fn gemm(py: Python<'_>, ordinal: usize, problem: &GemmProblem, [a, b, c]: [usize; 3]) -> PyResult<()> {
    let state = state::state();
    let desks = state.gpu(ordinal)?;
    let queue = desks.queue(py);
    desks.gemm.with(py, problem, &queue, |entry| {
        // SAFETY: the caller holds references to the tensors behind the addresses, whose spans were checked; torch keeps
        // memory that a stream still uses from others on that stream.
        let args = unsafe {
            let a = View::from_raw(a as u64, problem.dtype, problem.a_len());
            let b = View::from_raw(b as u64, problem.dtype, problem.b_len());
            GemmArgs::<Cuda> { problem, a, b, c: ViewMut::from_raw(c as u64, problem.dtype, problem.c_len()) }
        };
        entry.kernel.launch(args, &queue).map_err(|e| rejected(&e))
    })
}

/// The addresses of a block-sparse product in device memory.
pub(crate) struct BsrAddresses {
    pub(crate) row_ptr: u64,
    pub(crate) col_idx: u64,
    pub(crate) values: usize,
    pub(crate) b: usize,
    pub(crate) out: usize,
}

/// Queues a block-sparse product in device memory; `arguments` are made where a callable is chosen.
pub(crate) fn bsr<'py>(
    py: Python<'py>,
    desks: &GpuDesks,
    queue: &Stream,
    problem: &BsrProblem,
    at: &BsrAddresses,
    arguments: Option<impl FnOnce() -> PyResult<Bound<'py, PyTuple>>>,
) -> PyResult<()> {
    desks.bsr.with(py, problem, queue, |entry| {
        if let (Some(foreign), Some(arguments)) = (&entry.foreign, arguments) {
            return foreign.call(&arguments()?);
        }
        let (p, index) = (problem, DType::I32);
        // SAFETY: the indices are copies that the caller holds and that were validated; the caller holds references to
        // the tensors behind the other addresses, whose shapes were checked.
        let args = unsafe {
            BsrArgs::<Cuda> {
                problem,
                row_ptr: View::from_raw(at.row_ptr, index, p.rows() + 1),
                col_idx: View::from_raw(at.col_idx, index, p.nnz as usize),
                values: View::from_raw(at.values as u64, p.dtype, p.values_len()),
                b: View::from_raw(at.b as u64, p.dtype, (p.k * p.n) as usize),
                c: ViewMut::from_raw(at.out as u64, p.dtype, (p.m * p.n) as usize),
                add: None,
                place: None,
            }
        };
        entry.kernel.launch(args, queue).map_err(|e| rejected(&e))
    })
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
        let desks = state.gpu(self.ordinal)?;
        let (device, known) = (desks.device.clone(), &desks.gemm.tuner);
        let (kernel, name): (Arc<dyn Kernel<Gemm, Cuda>>, String) = match variant {
            None => {
                let settings = Settings { policy: policy(cold), ..known.settings().clone() };
                let tuner = Tuner::new(device.clone(), known.catalog().clone(), state.store.clone(), settings);
                let chosen = py.detach(|| tuner.choose(&problem)).map_err(raise)?;
                (chosen.kernel, chosen.candidate.to_string())
            }
            Some(id) => {
                let unknown = || PyValueError::new_err(format!("variant: '{id}' is not known"));
                let variant = known.catalog().find(id).ok_or_else(unknown)?;
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
            ..state.gpu_settings()
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
