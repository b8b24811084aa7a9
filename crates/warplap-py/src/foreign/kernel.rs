//! A callable as a kernel: arguments by slot come in; it is called with tensors over them.
//!
//! While it is raced it gets tensors made from the race's own buffers, on the race's own stream. A launch takes the
//! interpreter's lock for itself, so that tuning runs without it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use warplap::Arg;
use warplap::core::arg::ScalarArg;
use warplap::core::rejection::Rejection;
use warplap::core::slot::Signature;
use warplap::core::variant::Kernel;

use super::Choice;
use crate::call::torch::Torch;
use crate::launch::pool::Pool;
use crate::tensor::capsule::{self, Buffer};
use crate::tensor::dlpack::DlDevice;
use crate::tensor::kernel_argument::LaunchDevice;

/// What a launch was given, in numbers: addresses, and the bits of numbers given by value.
type CallName = Vec<u64>;

/// The arguments of a call, and where what it returns goes.
struct KeptTensors {
    name: CallName,
    arguments: Py<PyTuple>,
    /// What one that gives a new output is called with.
    read: Py<PyTuple>,
    to: Vec<Py<PyAny>>,
}

impl KeptTensors {
    fn clone_ref(&self, py: Python<'_>) -> KeptTensors {
        let to = self.to.iter().map(|t| t.clone_ref(py)).collect();
        KeptTensors { name: Vec::new(), arguments: self.arguments.clone_ref(py), read: self.read.clone_ref(py), to }
    }
}

/// How many argument lists a kernel keeps: a race uses one set of buffers to prove and a few to time.
const KEEP: usize = 16;

pub(super) struct ForeignKernel {
    choice: Choice,
    signature: Signature,
    place: DlDevice,
    pool: Pool,
    // Making a tensor takes longer than a small product: who asks for the same memory again gets the same tensors. They
    // own nothing, so memory that is gone meanwhile is not touched by keeping them.
    kept: Mutex<Vec<KeptTensors>>,
    /// Whether the other form of one that writes, which gives a new output, is what is proved next.
    gives: AtomicBool,
}

impl ForeignKernel {
    pub(super) fn new(choice: Choice, signature: Signature, place: DlDevice) -> Self {
        ForeignKernel {
            choice,
            signature,
            place,
            pool: Pool::new(),
            kept: Mutex::default(),
            gives: AtomicBool::new(false),
        }
    }

    fn run<D: LaunchDevice>(&self, py: Python<'_>, args: &mut [Arg<'_, D>], timed: bool) -> PyResult<()> {
        let name: CallName = args.iter_mut().map(number).collect();
        // Not held while Python runs: it may let another thread in, which would wait here for ever.
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept().iter().find(|made| made.name == name).map(|made| made.clone_ref(py));
        let KeptTensors { arguments, read, to, .. } = match known {
            Some(known) => known,
            None => {
                let made = self.make(py, name, args)?;
                let passed = made.clone_ref(py);
                let mut held = kept();
                let left = if held.len() >= KEEP { Some(held.remove(0)) } else { None };
                held.push(made);
                drop(held);
                drop(left);
                passed
            }
        };
        let to = to.iter().map(|t| t.bind(py));
        // Programs call either form, so proofs are of both in turns.
        if !timed && self.choice.gives() && self.gives.fetch_xor(true, Relaxed) {
            return self.choice.copy(self.choice.read_tensors(read.bind(py))?, to);
        }
        let passed = self.choice.called(arguments.bind(py))?;
        // A program that calls it takes what it returns: a copy to where the race wants it is no part of its time.
        let copied = self.choice.returns() && !timed;
        if copied { self.choice.copy(passed, to) } else { Ok(()) }
    }

    fn make<D: LaunchDevice>(&self, py: Python<'_>, name: CallName, args: &mut [Arg<'_, D>]) -> PyResult<KeptTensors> {
        let torch = Torch::here(py).ok_or_else(|| PyRuntimeError::new_err("torch is not there"))?;
        let tensors = args.iter_mut().zip(self.signature.slots()).map(|(arg, slot)| match arg {
            Arg::Absent => Ok(None),
            Arg::Scalar(ScalarArg::Int(v)) => Ok(Some(v.into_pyobject(py)?.into_any())),
            Arg::Scalar(ScalarArg::Real(v)) => Ok(Some(v.into_pyobject(py)?.into_any())),
            buffer => {
                let kernel_arguments = Buffer::at(D::address(buffer).unwrap_or(0), slot);
                torch.tensor(capsule::capsule(py, &kernel_arguments, self.place)?).map(Some)
            }
        });
        let tensors = tensors.collect::<PyResult<Vec<Option<Bound<'_, PyAny>>>>>()?;
        let arguments = self.choice.arguments(py, &tensors)?.unbind();
        let read = self.choice.read(py, &tensors)?.unbind();
        let to = self.choice.written.iter().filter_map(|i| Some(tensors[*i].as_ref()?.clone().unbind())).collect();
        Ok(KeptTensors { name, arguments, read, to })
    }
}

/// What tells one argument of a launch from another.
fn number<D: LaunchDevice>(arg: &mut Arg<'_, D>) -> u64 {
    match arg {
        Arg::Scalar(ScalarArg::Int(v)) => *v as u64,
        Arg::Scalar(ScalarArg::Real(v)) => v.to_bits(),
        buffer => D::address(buffer).unwrap_or(0) as u64,
    }
}

impl<D: LaunchDevice> Kernel<D> for ForeignKernel {
    fn writes(&self) -> bool {
        !self.choice.returns()
    }

    fn launch(&self, args: &mut [Arg<'_, D>], queue: &D::Queue) -> Result<(), Rejection> {
        Python::attach(|py| {
            let run = || self.run(py, args, D::is_timed(queue));
            D::on_queue(py, queue, self.place, &self.pool, run).map_err(|error: PyErr| {
                if error.is_instance_of::<PyKeyboardInterrupt>(py) {
                    crate::api::watch::interrupt(error);
                    return Rejection::LaunchFailed { reason: "interrupted".into() };
                }
                Rejection::LaunchFailed { reason: error.to_string() }
            })
        })
    }
}
