//! Foreign variants: a Python callable (torch's own implementation, a user's) joins a catalog and obeys the same rules:
//! it is proved right on poisoned outputs, raced, and recorded by its id, config and source.
//!
//! While it is raced it gets tensors made from the race's own buffers, on the race's own stream. A launch takes the
//! interpreter's lock for itself, so that tuning runs without it.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use warplap::core::candidate::SourceHash;
use warplap::core::op::Op;
use warplap::core::rejection::Rejection;
use warplap::core::space::{Axis, Config, Space, Value};
use warplap::core::variant::{Fit, Kernel, Variant};

use crate::capsule;
use crate::dlpack::DlDevice;
use crate::lent::{Buffer, Lent};
use crate::torch::Torch;

/// A callable that wants to race.
pub(crate) struct Foreigner {
    op: String,
    device: String,
    id: String,
    source: SourceHash,
    fit: Option<Py<PyAny>>,
    space: Option<Py<PyAny>>,
    prepare: Option<Py<PyAny>>,
    call: Py<PyAny>,
}

/// A callable that was chosen, with its settings.
pub(crate) struct Choice {
    face: Arc<Foreigner>,
    settings: Option<Py<PyDict>>,
}

impl Choice {
    /// Calls it.
    #[inline]
    pub(crate) fn call(&self, arguments: &Bound<'_, PyTuple>) -> PyResult<()> {
        let py = arguments.py();
        self.face.call.bind(py).call(arguments, self.settings.as_ref().map(|s| s.bind(py))).map(drop)
    }
}

static FOREIGNERS: Mutex<Vec<Arc<Foreigner>>> = Mutex::new(Vec::new());

fn all() -> std::sync::MutexGuard<'static, Vec<Arc<Foreigner>>> {
    FOREIGNERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Those that want to race in an operation on a kind of device, in the order they came.
pub(crate) fn of(op: &str, device: &str) -> Vec<Arc<Foreigner>> {
    all().iter().filter(|f| f.op == op && f.device == device).cloned().collect()
}

/// The callable behind a variant's id, with a setting.
pub(crate) fn find(py: Python<'_>, op: &str, device: &str, id: &str, config: &Config) -> PyResult<Option<Choice>> {
    let found = all().iter().find(|f| f.op == op && f.device == device && f.id == id).cloned();
    found.map(|face| Ok(Choice { face, settings: settings(py, config)? })).transpose()
}

fn settings(py: Python<'_>, config: &Config) -> PyResult<Option<Py<PyDict>>> {
    if config.0.is_empty() {
        return Ok(None);
    }
    let settings = PyDict::new(py);
    for (name, value) in &config.0 {
        match value {
            Value::Int(v) => settings.set_item(name, v)?,
            Value::Bool(v) => settings.set_item(name, v)?,
            other => settings.set_item(name, other.to_string())?,
        }
    }
    Ok(Some(settings.unbind()))
}

/// Adds a callable to an operation's catalog on the CPU or on CUDA devices; one of the same name is replaced. `fit` says
/// why it stands aside from a problem (given as text), or None; `space` gives its tunables for one, a dictionary of names
/// and values, which come as keyword arguments; `prepare` compiles what a setting needs for one, ahead of its turn.
#[pyfunction]
#[pyo3(signature = (op, id, source, call, fit=None, *, device="cpu", space=None, prepare=None))]
#[expect(clippy::too_many_arguments, reason = "a Python function with named arguments")]
pub(crate) fn add_variant(
    op: &str,
    id: &str,
    source: &str,
    call: Py<PyAny>,
    fit: Option<Py<PyAny>>,
    device: &str,
    space: Option<Py<PyAny>>,
    prepare: Option<Py<PyAny>>,
) -> PyResult<()> {
    if !matches!(device, "cpu" | "cuda") {
        return Err(PyValueError::new_err(format!("device: is '{device}', expected cpu or cuda")));
    }
    let source = SourceHash::of(&[source]);
    let new =
        Arc::new(Foreigner { op: op.into(), device: device.into(), id: id.into(), source, fit, space, prepare, call });
    let mut all = all();
    let former = match all.iter_mut().find(|f| f.op == op && f.device == device && f.id == id) {
        Some(old) => Some(std::mem::replace(old, new)),
        None => {
            all.push(new);
            None
        }
    };
    // Let go after the lock: the end of a callable may run a program's own code.
    drop(all);
    drop(former);
    Ok(())
}

/// An operation that foreign callables may join.
pub(crate) trait Described: Op {
    /// The buffers of a launch, the output last.
    fn buffers<D: Lent>(args: Self::Args<'_, D>) -> Vec<Buffer>;

    /// The arguments of the callable, from the buffers as tensors.
    fn arguments<'py>(
        problem: &Self::Problem,
        py: Python<'py>,
        tensors: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>>;
}

/// A foreign callable as a variant of an operation.
pub(crate) struct Foreign<O> {
    face: Arc<Foreigner>,
    op: PhantomData<fn() -> O>,
}

impl<O> Foreign<O> {
    pub(crate) fn new(face: Arc<Foreigner>) -> Self {
        Foreign { face, op: PhantomData }
    }
}

impl<O: Described, D: Lent> Variant<O, D> for Foreign<O> {
    fn id(&self) -> &str {
        &self.face.id
    }

    fn source(&self) -> SourceHash {
        self.face.source.clone()
    }

    fn fit(&self, problem: &O::Problem, _: &D) -> Fit {
        let Some(fit) = &self.face.fit else { return Fit::HIGH };
        Python::attach(|py| match fit.bind(py).call1((O::text(problem),)).and_then(|a| a.extract::<Option<String>>()) {
            Ok(None) => Fit::HIGH,
            Ok(Some(reason)) => Fit::Aside(reason),
            Err(error) => Fit::Aside(format!("asking whether it fits failed: {error}")),
        })
    }

    fn space(&self, problem: &O::Problem, _: &D) -> Space {
        let Some(space) = &self.face.space else { return Space::single() };
        type Axes = Vec<(String, Vec<i64>)>;
        let asked = |py: Python<'_>| -> PyResult<Axes> {
            space
                .bind(py)
                .call1((O::text(problem),))?
                .cast_into::<PyDict>()?
                .iter()
                .map(|(n, v)| Ok((n.extract()?, v.extract()?)))
                .collect()
        };
        let axes = Python::attach(asked).unwrap_or_else(|error| {
            tracing::warn!("variant {}: its space failed: {error}", self.face.id);
            vec![("failed".into(), Vec::new())]
        });
        axes.into_iter().fold(Space::single(), |space, (name, values)| space.axis(Axis::ints(&name, values)))
    }

    fn compile(&self, problem: &O::Problem, config: &Config, _: &D) -> Result<(), Rejection> {
        let Some(prepare) = &self.face.prepare else { return Ok(()) };
        let asked = |py: Python<'_>| -> PyResult<()> {
            let settings = settings(py, config)?;
            prepare.bind(py).call((O::text(problem),), settings.as_ref().map(|s| s.bind(py))).map(drop)
        };
        Python::attach(asked).map_err(|e| Rejection::DoesNotBuild { reason: e.to_string() })
    }

    fn build(&self, problem: &O::Problem, config: &Config, device: &D) -> Result<Box<dyn Kernel<O, D>>, Rejection> {
        let failed = |e: PyErr| Rejection::DoesNotBuild { reason: e.to_string() };
        let settings = Python::attach(|py| settings(py, config)).map_err(failed)?;
        let choice = Choice { face: self.face.clone(), settings };
        Ok(Box::new(Call::<O> { choice, problem: problem.clone(), place: device.place(), kept: Mutex::default() }))
    }

    fn is_library(&self) -> bool {
        self.face.id.starts_with("torch_")
    }
}

/// Argument lists kept by the addresses they were made from.
type Kept = Vec<(Vec<usize>, Py<PyTuple>)>;

/// How many argument lists a kernel keeps: a race uses one set of buffers to prove and a few to time.
const KEEP: usize = 16;

struct Call<O: Op> {
    choice: Choice,
    problem: O::Problem,
    place: DlDevice,
    // Making a tensor takes longer than a small product: who asks for the same memory again gets the same tensors. They
    // own nothing, so memory that is gone meanwhile is not touched by keeping them.
    kept: Mutex<Kept>,
}

impl<O: Described> Call<O> {
    fn arguments<'py>(&self, py: Python<'py>, buffers: &[Buffer]) -> PyResult<Bound<'py, PyTuple>> {
        // Lengths that depend on the drawing (a sparse matrix's blocks) tell buffers at one address apart.
        let name: Vec<usize> = buffers.iter().flat_map(|b| [b.address, b.shape[0] as usize]).collect();
        // Not held while Python runs: it may let another thread in, which would wait here for ever.
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept().iter().find(|(n, _)| *n == name).map(|(_, arguments)| arguments.clone_ref(py));
        if let Some(arguments) = known {
            return Ok(arguments.into_bound(py));
        }
        let torch = Torch::here(py).ok_or_else(|| PyRuntimeError::new_err("torch is not there"))?;
        let tensors =
            buffers.iter().map(|b| torch.tensor(capsule::capsule(py, b, self.place)?)).collect::<PyResult<Vec<_>>>()?;
        let arguments = O::arguments(&self.problem, py, tensors)?;
        let mut held = kept();
        let left = if held.len() >= KEEP { Some(held.remove(0)) } else { None };
        held.push((name, arguments.clone().unbind()));
        drop(held);
        drop(left);
        Ok(arguments)
    }
}

impl<O: Described, D: Lent> Kernel<O, D> for Call<O> {
    fn launch(&self, args: O::Args<'_, D>, queue: &D::Queue) -> Result<(), Rejection> {
        let buffers = O::buffers::<D>(args);
        Python::attach(|py| {
            let run = || D::on_queue(py, queue, self.place, || self.choice.call(&self.arguments(py, &buffers)?));
            run().map_err(|error: PyErr| {
                if error.is_instance_of::<pyo3::exceptions::PyKeyboardInterrupt>(py) {
                    crate::watch::interrupt(error);
                    return Rejection::LaunchFailed { reason: "interrupted".into() };
                }
                Rejection::LaunchFailed { reason: error.to_string() }
            })
        })
    }
}
