//! The door to every operation of the registry: a problem's text comes in once; after that tensors by slot come in, and
//! the outputs that nobody gave go out as new tensors of torch. An operation needs nothing here to be called from
//! Python.

use std::sync::OnceLock;

use pyo3::exceptions::{PyNotImplementedError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use warplap::any;
use warplap::core::catalog::Raced;
use warplap::core::slot::{Role, Signature, Slot};
use warplap::ops::registry::{self, Known, Visitor};

use crate::call::by_slot::{MOST, SlotCall};
use crate::call::direct::direct;
use crate::call::dispatcher::OpDispatchers;
use crate::call::state::state;
use crate::call::torch::Torch;
use crate::tensor::argument;
use crate::tensor::kernel_argument::LaunchDevice;

/// A problem of any operation.
trait GenericOp: Send + Sync {
    fn call<'py>(
        &self,
        py: Python<'py>,
        gpu: Option<usize>,
        passed: &mut SlotCall<'_, 'py>,
    ) -> PyResult<Option<Bound<'py, PyAny>>>;

    /// Whether torch's own function answers because nothing was decided; `false` before the first call.
    fn is_torchs(&self, gpu: Option<usize>) -> PyResult<bool>;
}

struct Of<O: Known>(O::Problem);

impl<O: Known> GenericOp for Of<O> {
    #[inline]
    fn call<'py>(
        &self,
        py: Python<'py>,
        gpu: Option<usize>,
        passed: &mut SlotCall<'_, 'py>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let state = state();
        match gpu {
            None => passed.on::<O, _>(py, state.dispatchers(), &self.0),
            // There a check of indices would wait for the stream; the operators that have some keep checked copies.
            Some(_) if passed.indexed => Err(PyNotImplementedError::new_err(format!(
                "{}: its indices are on a GPU, expected the host; the operator of that name takes them there",
                O::NAME
            ))),
            Some(ordinal) => passed.on::<O, _>(py, state.gpu(ordinal)?, &self.0),
        }
    }

    #[inline]
    fn is_torchs(&self, gpu: Option<usize>) -> PyResult<bool> {
        fn of<O: Known + Raced<D>, D: LaunchDevice>(dispatchers: &OpDispatchers<D>, problem: &O::Problem) -> bool {
            dispatchers.of::<O>().if_known(problem, |entry| entry.undecided && entry.foreign.is_some()).unwrap_or(false)
        }
        let state = state();
        Ok(match gpu {
            None => of::<O, _>(state.dispatchers(), &self.0),
            Some(ordinal) => of::<O, _>(state.gpu(ordinal)?, &self.0),
        })
    }
}

/// How a problem of an operation is read, and whether its kernels look at whole numbers before they follow them.
type OpenOp = fn(&str) -> Result<(Box<dyn GenericOp>, Signature, bool), String>;

/// The operations of the registry by name.
struct GenericOps(Vec<(&'static str, OpenOp)>);

impl Visitor for GenericOps {
    fn visit<O: Known>(&mut self) {
        self.0.push((O::NAME, |text| {
            let problem = O::parse(text).map_err(|e| e.to_string())?;
            let signature = O::signature(&problem);
            Ok((Box::new(Of::<O>(problem)), signature, O::GUARDED))
        }));
    }
}

/// A problem of any operation, ready to be called.
#[pyclass(frozen)]
pub(crate) struct Prepared {
    op_call: Box<dyn GenericOp>,
    signature: Signature,
    indexed: bool,
    /// The problem's text in its one form.
    #[pyo3(get)]
    problem: String,
}

#[pymethods]
impl Prepared {
    #[new]
    fn new(problem: &str) -> PyResult<Self> {
        static OPS: OnceLock<GenericOps> = OnceLock::new();
        let doors = OPS.get_or_init(|| {
            let mut doors = GenericOps(Vec::new());
            registry::each(&mut doors);
            doors
        });
        let refused = |why: String| PyValueError::new_err(why);
        let (op, text) = any::problem(problem, None).map_err(|e| refused(e.to_string()))?;
        let open = doors.0.iter().find(|(name, _)| *name == op.name).map(|(_, open)| open);
        let open = open.ok_or_else(|| refused(format!("the operation {} is not in the registry", op.name)))?;
        let (op_call, signature, guarded) = open(&text).map_err(refused)?;
        if signature.slots().len() > MOST || signature.slots().iter().any(|s| s.role == Role::Scalar) {
            return Err(PyNotImplementedError::new_err(format!(
                "{}: takes more than {MOST} slots, or a number",
                op.name
            )));
        }
        // Bytes are numbers, not places.
        let wide = |s: &Slot| s.dtype.is_whole() && s.dtype.bytes() > 1;
        let indexed = !guarded && signature.slots().iter().any(|s| s.role == Role::In && wide(s));
        Ok(Prepared { op_call, signature, indexed, problem: text })
    }

    /// The names of the slots in their order, and whether the problem has each.
    #[getter]
    fn slots(&self) -> Vec<(String, bool)> {
        self.signature.slots().iter().map(|slot| (slot.name.to_string(), slot.present)).collect()
    }

    /// Runs it on tensors by slot, None where the problem has none. Outputs that are None or left out at the end are
    /// made, and returned: one, or a tuple.
    #[pyo3(signature = (*tensors))]
    #[inline]
    fn __call__<'py>(&self, tensors: &Bound<'py, PyTuple>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut passed = SlotCall::new(self.signature.slots(), self.indexed, tensors)?;
        let gpu = argument::place(&passed.call_arguments())?;
        self.op_call.call(tensors.py(), gpu, &mut passed)
    }

    /// The same at once over tensors of torch: None where that is not for this path to do.
    #[pyo3(signature = (*tensors))]
    fn direct<'py>(&self, tensors: &Bound<'py, PyTuple>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = tensors.py();
        let Some(torch) = Torch::here(py) else { return Ok(None) };
        let own: Vec<Bound<'py, PyAny>> = tensors.iter().filter(|tensor| !tensor.is_none()).collect();
        if !torch.is_direct(py, &own.iter().collect::<Vec<_>>())? {
            return Ok(None);
        }
        // What has no memory of its own (tensors under a transform) is not for this path either.
        let Ok(mut passed) = SlotCall::new(self.signature.slots(), self.indexed, tensors) else { return Ok(None) };
        let Ok(gpu) = argument::place(&passed.call_arguments()) else { return Ok(None) };
        Ok(direct(py, self.op_call.call(py, gpu, &mut passed))?.flatten())
    }

    /// Whether torch's own function answers because nothing was decided: then it may as well be called itself.
    #[pyo3(signature = (gpu=None))]
    fn is_torchs(&self, gpu: Option<usize>) -> PyResult<bool> {
        self.op_call.is_torchs(gpu)
    }

    fn __repr__(&self) -> String {
        format!("Prepared({:?})", self.problem)
    }
}
