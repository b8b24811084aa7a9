//! Foreign variants: a Python callable (torch's own implementation, a user's) joins a catalog and obeys the same rules:
//! it is proved right on poisoned outputs, raced, and recorded by its id and source.
//!
//! While it is raced it gets tensors made from the race's own buffers. A launch takes the interpreter's lock for itself,
//! so that tuning runs without it.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use warplap::Cpu;
use warplap::core::candidate::SourceHash;
use warplap::core::op::Op;
use warplap::core::rejection::Rejection;
use warplap::core::space::{Config, Space};
use warplap::core::variant::{Fit, Kernel, Variant};
use warplap::cpu::{Slice, SliceMut};

use crate::capsule;
use crate::torch::Torch;

/// A callable that wants to race.
pub(crate) struct Foreigner {
    op: String,
    id: String,
    source: SourceHash,
    fit: Option<Py<PyAny>>,
    pub(crate) call: Py<PyAny>,
}

static FOREIGNERS: Mutex<Vec<Arc<Foreigner>>> = Mutex::new(Vec::new());

fn all() -> std::sync::MutexGuard<'static, Vec<Arc<Foreigner>>> {
    FOREIGNERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Those that want to race in an operation, in the order they came.
pub(crate) fn of(op: &str) -> Vec<Arc<Foreigner>> {
    all().iter().filter(|f| f.op == op).cloned().collect()
}

/// The callable behind a variant's id.
pub(crate) fn find(op: &str, id: &str) -> Option<Arc<Foreigner>> {
    all().iter().find(|f| f.op == op && f.id == id).cloned()
}

/// Adds a callable to an operation's catalog; one of the same name is replaced. `fit` says why it stands aside from a
/// problem (given as text), or None.
#[pyfunction]
#[pyo3(signature = (op, id, source, call, fit=None))]
pub(crate) fn add_variant(op: &str, id: &str, source: &str, call: Py<PyAny>, fit: Option<Py<PyAny>>) -> PyResult<()> {
    let source = SourceHash::of(&[source]);
    let new = Arc::new(Foreigner { op: op.into(), id: id.into(), source, fit, call });
    let mut all = all();
    let former = match all.iter_mut().find(|f| f.op == op && f.id == id) {
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

/// One buffer of a launch: address, type, sizes and strides as torch counts them.
pub(crate) struct Buffer {
    pub(crate) address: usize,
    pub(crate) dtype: warplap::DType,
    pub(crate) shape: Vec<i64>,
    pub(crate) strides: Vec<i64>,
}

impl Buffer {
    pub(crate) fn read(slice: Slice<'_>, shape: &[u64], strides: &[u64]) -> Self {
        Self::at(slice.address(), slice.dtype(), shape, strides)
    }

    pub(crate) fn write(slice: &mut SliceMut<'_>, shape: &[u64], strides: &[u64]) -> Self {
        let dtype = slice.dtype();
        let address = match slice {
            SliceMut::F64(v) => v.as_mut_ptr() as usize,
            SliceMut::F32(v) => v.as_mut_ptr() as usize,
            SliceMut::F16(v) => v.as_mut_ptr() as usize,
            SliceMut::Bf16(v) => v.as_mut_ptr() as usize,
            SliceMut::I32(v) => v.as_mut_ptr() as usize,
        };
        Self::at(address, dtype, shape, strides)
    }

    fn at(address: usize, dtype: warplap::DType, shape: &[u64], strides: &[u64]) -> Self {
        let signed = |sizes: &[u64]| sizes.iter().map(|s| *s as i64).collect();
        Buffer { address, dtype, shape: signed(shape), strides: signed(strides) }
    }
}

/// An operation that foreign callables may join.
pub(crate) trait Described: Op {
    /// The buffers of a launch, the output last.
    fn buffers(args: Self::Args<'_, Cpu>) -> Vec<Buffer>;

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

impl<O: Described> Variant<O, Cpu> for Foreign<O> {
    fn id(&self) -> &str {
        &self.face.id
    }

    fn source(&self) -> SourceHash {
        self.face.source.clone()
    }

    fn fit(&self, problem: &O::Problem, _: &Cpu) -> Fit {
        let Some(fit) = &self.face.fit else { return Fit::HIGH };
        Python::attach(|py| match fit.bind(py).call1((O::text(problem),)).and_then(|a| a.extract::<Option<String>>()) {
            Ok(None) => Fit::HIGH,
            Ok(Some(reason)) => Fit::Aside(reason),
            Err(error) => Fit::Aside(format!("asking whether it fits failed: {error}")),
        })
    }

    fn space(&self, _: &O::Problem, _: &Cpu) -> Space {
        Space::single()
    }

    fn build(&self, problem: &O::Problem, _: &Config, _: &Cpu) -> Result<Box<dyn Kernel<O, Cpu>>, Rejection> {
        Ok(Box::new(Call { face: self.face.clone(), problem: problem.clone(), kept: Mutex::default() }))
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
    face: Arc<Foreigner>,
    problem: O::Problem,
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
        let torch = Torch::here(py).ok_or_else(|| pyo3::exceptions::PyRuntimeError::new_err("torch is not there"))?;
        let tensors = buffers
            .iter()
            .map(|b| torch.tensor(capsule::capsule(py, b.address, b.dtype, &b.shape, &b.strides)?))
            .collect::<PyResult<Vec<_>>>()?;
        let arguments = O::arguments(&self.problem, py, tensors)?;
        let mut held = kept();
        let left = if held.len() >= KEEP { Some(held.remove(0)) } else { None };
        held.push((name, arguments.clone().unbind()));
        drop(held);
        drop(left);
        Ok(arguments)
    }
}

impl<O: Described> Kernel<O, Cpu> for Call<O> {
    fn launch(&self, args: O::Args<'_, Cpu>, _: &()) -> Result<(), Rejection> {
        let buffers = O::buffers(args);
        Python::attach(|py| {
            let run = || self.face.call.bind(py).call1(self.arguments(py, &buffers)?).map(drop);
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
