//! The one way of a call: a problem and memory by slot come in; the kernel of choice runs on it where the memory is.

use pyo3::exceptions::{PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use warplap::core::catalog::Raced;
use warplap::cuda::Stream;
use warplap::ops::registry::Known;

use crate::call::dispatcher::{Entry, OpDispatchers, Tensors};
use crate::call::state::state;
use crate::call::torch::{Made, Torch};
use crate::foreign::Choice;
use crate::tensor::argument::Checked;
use crate::tensor::kernel_argument::LaunchDevice;
use crate::tensor::view::View;

/// Does an operation on memory by slot. `tensors` are the caller's own, where they are torch's; `queued` is told the
/// stream that a launch on a GPU goes to.
#[inline]
pub(crate) fn call<'py, O: Known, const N: usize>(
    py: Python<'py>,
    problem: &O::Problem,
    memory: &Checked<'_, N>,
    tensors: Option<Tensors<'_, 'py, N>>,
    queued: impl FnOnce(&Stream),
) -> PyResult<()> {
    let state = state();
    match memory.gpu() {
        None => on::<O, _, N>(py, state.dispatchers(), problem, memory, tensors, |_| ()),
        Some(ordinal) => on::<O, _, N>(py, state.gpu(ordinal)?, problem, memory, tensors, queued),
    }
}

#[inline]
fn on<'py, O: Raced<D>, D: LaunchDevice, const N: usize>(
    py: Python<'py>,
    dispatchers: &OpDispatchers<D>,
    problem: &O::Problem,
    memory: &Checked<'_, N>,
    tensors: Option<Tensors<'_, 'py, N>>,
    queued: impl FnOnce(&D::Queue),
) -> PyResult<()> {
    let queue = dispatchers.queue(py);
    queued(&queue);
    dispatchers.of::<O>().with(py, problem, &queue, |entry| entry.run(py, &queue, memory, tensors))
}

/// A call without an output of its own.
pub(crate) trait Fresh<'py, const N: usize> {
    /// A new tensor to be written, and its memory; nothing where the inputs do not lie as the problem says, which some
    /// callables follow.
    fn make(&self, torch: &Torch) -> PyResult<Option<Made<'py>>>;

    /// Memory by slot, with that of the output.
    fn memory<'a>(&'a self, out: &'a View) -> PyResult<Checked<'a, N>>;

    /// The caller's own tensors by slot, with the output where there is one.
    fn tensors(&self, out: Option<&Bound<'py, PyAny>>) -> PyResult<[Option<Bound<'py, PyAny>>; N]>;

    /// Whether the inputs lie as the problem says: calls with others take what was chosen, and choose nothing.
    #[inline]
    fn is_as_raced(&self) -> bool {
        true
    }

    /// What a library's function gives that takes the caller's arguments as they are, where the choice has one.
    #[inline]
    fn as_called(&self, _choice: &Choice) -> Option<PyResult<Bound<'py, PyAny>>> {
        None
    }
}

/// Does an operation and gives its output: what a callable returned, or a new tensor that was written. Nothing where
/// the inputs do not lie as the problem says and nobody was chosen for it, or does not follow them.
#[inline]
pub(crate) fn answer<'py, O: Known, const N: usize>(
    torch: &Torch,
    py: Python<'py>,
    problem: &O::Problem,
    gpu: Option<usize>,
    fresh: &impl Fresh<'py, N>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let state = state();
    match gpu {
        None => answer_on::<O, _, N>(torch, py, state.dispatchers(), problem, fresh),
        Some(ordinal) => answer_on::<O, _, N>(torch, py, state.gpu(ordinal)?, problem, fresh),
    }
}

#[inline]
fn answer_on<'py, O: Raced<D>, D: LaunchDevice, const N: usize>(
    torch: &Torch,
    py: Python<'py>,
    dispatchers: &OpDispatchers<D>,
    problem: &O::Problem,
    fresh: &impl Fresh<'py, N>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let queue = dispatchers.queue(py);
    let run = |entry: &Entry<D>| {
        if let Some(passed) = entry.foreign.as_ref().and_then(|f| fresh.as_called(f)) {
            return passed.map(Some);
        }
        if let Some(foreign) = entry.foreign.as_ref().filter(|f| f.gives()) {
            return match foreign.give(py, &fresh.tensors(None)?) {
                // It was raced on tensors that lie as the problem says, and may not take others.
                Err(error) if error.is_instance_of::<PyRuntimeError>(py) && fresh.make(torch)?.is_none() => Ok(None),
                outcome => outcome.map(Some),
            };
        }
        let Some((out, view)) = fresh.make(torch)? else { return Ok(None) };
        entry.run(py, &queue, &fresh.memory(&view)?, Some(&|| fresh.tensors(Some(&out))))?;
        Ok(Some(out))
    };
    let dispatcher = dispatchers.of::<O>();
    if fresh.is_as_raced() {
        dispatcher.with(py, problem, &queue, run)
    } else {
        dispatcher.if_known(problem, run).unwrap_or(Ok(None))
    }
}

/// Whether a kernel was chosen already for a problem: everything a call does before it launches.
pub(crate) fn is_known<O: Known, const N: usize>(
    py: Python<'_>,
    problem: &O::Problem,
    memory: &Checked<'_, N>,
    queued: impl FnOnce(&Stream),
) -> PyResult<bool> {
    let state = state();
    match memory.gpu() {
        None => Ok(state.dispatchers().of::<O>().knows(problem)),
        Some(ordinal) => {
            let dispatchers = state.gpu(ordinal)?;
            queued(&dispatchers.queue(py));
            Ok(dispatchers.of::<O>().knows(problem))
        }
    }
}

/// What a direct path gave: nothing where the arguments are not for it, or a device cannot be used. The general way
/// says what is wrong with them, or has torch to fall back on.
#[inline]
pub(crate) fn direct<T>(py: Python<'_>, outcome: PyResult<T>) -> PyResult<Option<T>> {
    let elsewhere = |error: &PyErr| {
        error.is_instance_of::<PyValueError>(py)
            || error.is_instance_of::<PyTypeError>(py)
            || error.is_instance_of::<PyNotImplementedError>(py)
    };
    match outcome {
        Ok(done) => Ok(Some(done)),
        Err(error) if elsewhere(&error) => Ok(None),
        Err(error) => Err(error),
    }
}
