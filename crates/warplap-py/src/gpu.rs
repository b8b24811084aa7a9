//! NVIDIA GPUs: an ordinal comes in; the one device of the process goes out, and a GPU by hand for callers with no tensors.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use pyo3::exceptions::{PyNotImplementedError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use warplap::core::device::Device;
use warplap::core::slot::{Signature, Slot};
use warplap::core::space::Config;
use warplap::core::store::default_root;
use warplap::core::variant::Kernel;
use warplap::cuda::{View, ViewMut};
use warplap::{Arg, Cuda, Gemm, Mode, Op, Settings, Tuner};

use crate::failure::{raise, rejected};
use crate::state;
use crate::watch::{Watch, ended};

/// Devices with a higher ordinal are not looked for.
pub(crate) const DEVICES: usize = 16;

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

/// The devices of the process: one context each, whatever the store or the mode.
pub(crate) fn device(ordinal: usize) -> PyResult<Arc<Cuda>> {
    static OPENED: [OnceLock<Result<Arc<Cuda>, String>>; DEVICES] = [const { OnceLock::new() }; DEVICES];
    let opened = OPENED.get(ordinal).ok_or_else(|| missing(ordinal))?.get_or_init(|| {
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

/// No such GPU.
pub(crate) fn missing(ordinal: usize) -> PyErr {
    PyValueError::new_err(format!("device: is cuda:{ordinal}, expected one below {DEVICES}"))
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
        let (device, known) = (desks.device.clone(), &desks.of::<Gemm>().tuner);
        let (kernel, name): (Arc<dyn Kernel<Cuda>>, String) = match variant {
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
        Ok(GpuGemm { signature: Gemm::signature(&problem), kernel, name, device })
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
    signature: Signature,
    kernel: Arc<dyn Kernel<Cuda>>,
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
        let mut addresses = [a, b, c].into_iter();
        let argument = |slot: &Slot| {
            let Some(address) = addresses.next().filter(|_| slot.present) else { return Arg::Absent };
            // SAFETY: the caller's word, as the method says.
            unsafe {
                match slot.is_written() {
                    true => Arg::Write(ViewMut::from_raw(address, slot.dtype, slot.len())),
                    false => Arg::Read(View::from_raw(address, slot.dtype, slot.len())),
                }
            }
        };
        let mut args: Vec<Arg<'_, Cuda>> = self.signature.slots().iter().map(argument).collect();
        // SAFETY: the caller's word, as the method says.
        let queue = unsafe { self.device.foreign_stream(stream) };
        self.kernel.launch(&mut args, &queue).map_err(|e| PyRuntimeError::new_err(e.to_string()))
    }
}
