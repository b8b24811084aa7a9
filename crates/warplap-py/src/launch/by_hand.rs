//! A GPU by hand, for callers with no tensors: problems come in as texts, memory as addresses.

use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use warplap::core::measure::{CacheState, Policy};
use warplap::core::slot::{Signature, Slot};
use warplap::core::space::Config;
use warplap::core::variant::Kernel;
use warplap::cuda::{View, ViewMut};
use warplap::{Arg, Cuda, Gemm, Mode, Op, Settings, Tuner};

use crate::api::watch::{Watch, ended};
use crate::call::failure::{bad, raise, rejected};
use crate::call::state;
use crate::launch::gpu::device;

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
    #[pyo3(signature = (problem, *, budget=None, again=false, cold=false, clock=None))]
    fn tune(
        &self,
        py: Python<'_>,
        problem: &str,
        budget: Option<f64>,
        again: bool,
        cold: bool,
        clock: Option<&str>,
    ) -> PyResult<String> {
        let mut policy = policy(cold);
        policy.clock = clock.map_or(Ok(policy.clock), state::clock)?;
        let (tuner, text, stop) = self.tuner(problem, budget, again, policy)?;
        let watch = Watch { stop, tell: None };
        let outcome = py.detach(|| tuner.tune(&text, &watch));
        Ok(crate::api::tuning::tuned(&ended(outcome)?).to_string())
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
        let problem = Gemm::parse(problem).map_err(bad)?;
        let state = state::state();
        let dispatchers = state.gpu(self.ordinal)?;
        let (device, known) = (dispatchers.device.clone(), &dispatchers.of::<Gemm>().tuner);
        let (kernel, name): (Arc<dyn Kernel<Cuda>>, String) = match variant {
            None => {
                let settings = Settings { policy: policy(cold), ..known.settings().clone() };
                let tuner = Tuner::new(device.clone(), known.catalog().clone(), state.store.clone(), settings);
                let chosen = py.detach(|| tuner.choose(&problem)).map_err(raise)?;
                (chosen.kernel, chosen.candidate.to_string())
            }
            Some(id) => {
                let unknown = || bad(format!("variant: '{id}' is not known"));
                let variant = known.catalog().find(id).ok_or_else(unknown)?;
                let config = match config {
                    Some(text) => Config::parse(text).map_err(|e| bad(format!("config: {e}")))?,
                    None => variant.space(&problem, &device).default_config().unwrap_or_default(),
                };
                let built = py.detach(|| variant.build(&problem, &config, &device)).map_err(|e| rejected(&e))?;
                (built.into(), format!("{id}[{config}]"))
            }
        };
        Ok(GpuGemm { signature: Gemm::signature(&problem), kernel, name, device })
    }
}

fn policy(cold: bool) -> Policy {
    let mut policy = state::state().gpu_settings().policy;
    if cold {
        policy.cache = CacheState::Cold;
    }
    policy
}

type Opened = (Box<dyn warplap::any::AnyTuner>, String, warplap::Stop);

impl Gpu {
    fn tuner(&self, problem: &str, budget: Option<f64>, again: bool, policy: Policy) -> PyResult<Opened> {
        let (op, text) = warplap::any::problem(problem, None).map_err(bad)?;
        let state = state::state();
        let stop = warplap::Stop::default();
        let mut settings =
            Settings { mode: Mode::Tune, policy, again, yardsticks: true, stop: stop.clone(), ..state.gpu_settings() };
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

    /// Queues one launch on a stream, by the addresses of A, B and C, and of the bias where the problem has one. The
    /// caller vouches for them: nothing can be checked.
    #[pyo3(signature = (a, b, c, stream, bias=None))]
    fn launch(&self, a: u64, b: u64, c: u64, stream: usize, bias: Option<u64>) -> PyResult<()> {
        let mut addresses = [Some(a), Some(b), Some(c), bias].into_iter().flatten();
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
