//! Foreign variants: a Python callable (torch's own implementation, a user's) joins a catalog and obeys the same rules:
//! it is proved right on poisoned outputs, raced, and recorded by its id, config and source.

mod kernel;
mod variant;

pub(crate) use variant::Foreign;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyTuple};
use warplap::core::candidate::{Candidate, SourceHash};
use warplap::core::device::Device;
use warplap::core::op::Op;
use warplap::core::slot::{Signature, Slot};
use warplap::core::space::{Config, Real, Value};

use crate::call::failure::bad;

/// A callable that wants to race.
pub(crate) struct Foreigner {
    op: String,
    device: String,
    id: String,
    source: SourceHash,
    fit: Option<Py<PyAny>>,
    space: Option<Py<PyAny>>,
    prepare: Option<Py<PyAny>>,
    facts: Option<Py<PyAny>>,
    returns: bool,
    call: Py<PyAny>,
    /// Does the same and returns a new output, where `call` writes into one.
    give: Option<Py<PyAny>>,
    /// Functions that take the arguments of a call of ours as they are, by the name of that call.
    as_called: Vec<(String, Py<PyAny>)>,
}

static FOREIGNERS: Mutex<Vec<Arc<Foreigner>>> = Mutex::new(Vec::new());

fn all() -> std::sync::MutexGuard<'static, Vec<Arc<Foreigner>>> {
    FOREIGNERS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Foreigner {
    /// Whether this is its name.
    pub(crate) fn is(&self, id: &str) -> bool {
        self.id == id
    }

    /// Whether it is torch's own.
    pub(crate) fn is_library(&self) -> bool {
        self.id.starts_with("torch_")
    }
}

/// Those that want to race in an operation on a kind of device, in the order they came.
pub(crate) fn of(op: &str, device: &str) -> Vec<Arc<Foreigner>> {
    all().iter().filter(|f| f.op == op && f.device == device).cloned().collect()
}

/// The callable behind a candidate, if it is a foreign one.
pub(crate) fn find<O: Op, D: Device>(
    py: Python<'_>,
    problem: &O::Problem,
    signature: &Signature,
    candidate: &Candidate,
) -> PyResult<Option<Choice>> {
    let answer = of(O::NAME, D::KIND).into_iter().find(|f| f.id == candidate.variant);
    answer.map(|face| Choice::new(py, face, &O::text(problem), signature, &candidate.config)).transpose()
}

/// A value as Python has it.
pub(crate) fn object<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Int(v) => v.into_pyobject(py)?.into_any(),
        Value::Bool(v) => v.into_pyobject(py)?.to_owned().into_any(),
        Value::Float(v) => v.0.into_pyobject(py)?.into_any(),
        Value::Text(v) => v.into_pyobject(py)?.into_any(),
    })
}

/// Settings as keyword arguments.
pub(crate) fn settings<'py>(py: Python<'py>, config: &Config) -> PyResult<Bound<'py, PyDict>> {
    let settings = PyDict::new(py);
    for (name, value) in &config.0 {
        settings.set_item(name, object(py, value)?)?;
    }
    Ok(settings)
}

/// Settings that Python gave.
pub(crate) fn config(settings: &Bound<'_, PyDict>) -> PyResult<Config> {
    let mut config = Config::new();
    for (name, value) in settings.iter() {
        let value = if value.is_instance_of::<PyBool>() {
            Value::Bool(value.extract()?)
        } else if value.is_instance_of::<PyInt>() {
            value.extract().map_or_else(|_| Value::Text(value.to_string()), Value::Int)
        } else {
            value.cast::<PyFloat>().map_or_else(
                |_| Ok(Value::Text(value.str()?.extract()?)),
                |v| PyResult::Ok(Value::Float(Real(v.value()))),
            )?
        };
        config.0.insert(name.extract()?, value);
    }
    Ok(config)
}

/// A callable that was chosen for a problem, with its settings and the facts of the problem it asked for.
pub(crate) struct Choice {
    face: Arc<Foreigner>,
    keywords: Option<Py<PyDict>>,
    /// The slots that are written, by number, and those of them that are not read.
    written: Vec<usize>,
    unread: Vec<usize>,
}

impl Choice {
    fn new(
        py: Python<'_>,
        face: Arc<Foreigner>,
        problem: &str,
        signature: &Signature,
        config: &Config,
    ) -> PyResult<Choice> {
        let keywords = settings(py, config)?;
        if let Some(facts) = &face.facts {
            keywords.update(facts.bind(py).call1((problem,))?.cast::<PyDict>()?.as_mapping())?;
        }
        let keywords = (!keywords.is_empty()).then(|| keywords.unbind());
        let slots =
            |of: fn(&Slot) -> bool| (0..).zip(signature.slots()).filter(|(_, s)| of(s)).map(|(i, _)| i).collect();
        Ok(Choice {
            face,
            keywords,
            written: slots(Slot::is_written),
            unread: slots(|s| s.is_written() && !s.is_read()),
        })
    }

    /// Whether it returns what it computes.
    #[inline]
    pub(crate) fn returns(&self) -> bool {
        self.face.returns
    }

    /// Whether it makes an output of its own where none is given.
    #[inline]
    pub(crate) fn gives(&self) -> bool {
        self.face.returns || self.face.give.is_some()
    }

    /// Calls it with tensors by slot, and lets it write; what one returns is copied to where it belongs.
    #[inline]
    pub(crate) fn write<'py>(&self, py: Python<'py>, tensors: &[Option<Bound<'py, PyAny>>]) -> PyResult<()> {
        let passed = self.called(&self.arguments(py, tensors)?)?;
        if !self.face.returns {
            return Ok(());
        }
        let to = self.written.iter().filter_map(|i| tensors[*i].as_ref());
        self.copy(passed, to)
    }

    /// What one that gives its output gives for tensors by slot.
    #[inline]
    pub(crate) fn give<'py>(
        &self,
        py: Python<'py>,
        tensors: &[Option<Bound<'py, PyAny>>],
    ) -> PyResult<Bound<'py, PyAny>> {
        self.read_tensors(&self.read(py, tensors)?)
    }

    #[inline]
    fn read_tensors<'py>(&self, read: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let py = read.py();
        let give = self.face.give.as_ref().unwrap_or(&self.face.call).bind(py);
        give.call(read, self.keywords.as_ref().map(|k| k.bind(py)))
    }

    /// The function that takes the arguments of a call of ours as they are.
    #[inline]
    pub(crate) fn as_called(&self, name: &str) -> Option<&Py<PyAny>> {
        self.face.as_called.iter().find(|(n, _)| n == name).map(|(_, function)| function)
    }

    /// The arguments of a call: one a slot, None where the problem does not have it, without the last ones it does not
    /// have; for one that returns, without those that are written and not read.
    #[inline]
    fn arguments<'py>(&self, py: Python<'py>, tensors: &[Option<Bound<'py, PyAny>>]) -> PyResult<Bound<'py, PyTuple>> {
        if self.face.returns { self.read(py, tensors) } else { PyTuple::new(py, &tensors[..end(tensors)]) }
    }

    /// The arguments without those that are written and not read.
    #[inline]
    fn read<'py>(&self, py: Python<'py>, tensors: &[Option<Bound<'py, PyAny>>]) -> PyResult<Bound<'py, PyTuple>> {
        let read = tensors.iter().enumerate().filter(|(i, _)| !self.unread.contains(i));
        let read: Vec<Option<Bound<'py, PyAny>>> = read.map(|(_, t)| t.clone()).collect();
        PyTuple::new(py, &read[..end(&read)])
    }

    #[inline]
    fn called<'py>(&self, arguments: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let py = arguments.py();
        self.face.call.bind(py).call(arguments, self.keywords.as_ref().map(|k| k.bind(py)))
    }

    /// Copies what was returned: one tensor, or a tuple of as many as there are.
    fn copy<'t, 'py: 't>(
        &self,
        passed: Bound<'py, PyAny>,
        to: impl Iterator<Item = &'t Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let py = passed.py();
        let several = passed.cast::<PyTuple>().ok().cloned();
        for (i, to) in to.enumerate() {
            let from = match &several {
                Some(several) => several.get_item(i)?,
                None if i == 0 => passed.clone(),
                None => {
                    let what = format!("{}: returned one tensor, expected {}", self.face.id, self.written.len());
                    return Err(PyRuntimeError::new_err(what));
                }
            };
            to.call_method1(intern!(py, "copy_"), (from,))?;
        }
        Ok(())
    }
}

/// Behind the last slot that is there.
#[inline]
fn end(passed: &[Option<Bound<'_, PyAny>>]) -> usize {
    passed.iter().rposition(Option::is_some).map_or(0, |i| i + 1)
}

/// Adds a callable to an operation's catalog on the CPU or on CUDA devices; one of the same name is replaced. It gets
/// one tensor a slot, None where the problem does not have it; with `returns` those that it reads, and returns the
/// others. `fit` says why it stands aside from a problem (given as text), or None; `space` gives its tunables for one,
/// a dictionary of names and values, and `facts` what else it needs to know of one: both come as keyword arguments;
/// `prepare` compiles what a setting needs for one, ahead of its turn; `give` is the same function for callers without an
/// output: it gets what is read and returns a new one. `as_called` names functions that compute the same from the
/// arguments of a call of ours as they are, by that call's name.
#[pyfunction]
#[pyo3(signature = (op, id, source, call, fit=None, *, device="cpu", space=None, prepare=None, facts=None, returns=false, give=None, as_called=None))]
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
    facts: Option<Py<PyAny>>,
    returns: bool,
    give: Option<Py<PyAny>>,
    as_called: Option<HashMap<String, Py<PyAny>>>,
) -> PyResult<()> {
    if !matches!(device, "cpu" | "cuda") {
        return Err(bad(format!("device: is '{device}', expected cpu or cuda")));
    }
    let as_called = as_called.into_iter().flatten().collect();
    let (source, op, device, id) = (SourceHash::of(&[source]), op.to_string(), device.to_string(), id.to_string());
    let new =
        Arc::new(Foreigner { op, device, id, source, fit, space, prepare, facts, returns, call, give, as_called });
    let mut all = all();
    let former = match all.iter_mut().find(|f| f.op == new.op && f.device == new.device && f.id == new.id) {
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
