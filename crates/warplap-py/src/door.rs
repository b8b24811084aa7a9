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

use crate::argument;
use crate::by_slot::{Call, MOST};
use crate::call::direct;
use crate::desk::Desks;
use crate::lent::Lent;
use crate::state::state;
use crate::torch::Torch;

/// A problem of any operation.
trait Door: Send + Sync {
    fn call<'py>(
        &self,
        py: Python<'py>,
        gpu: Option<usize>,
        given: &mut Call<'_, 'py>,
    ) -> PyResult<Option<Bound<'py, PyAny>>>;

    /// Whether torch's own function answers because nothing was decided; `false` before the first call.
    fn is_torchs(&self, gpu: Option<usize>) -> PyResult<bool>;
}

struct Of<O: Known>(O::Problem);

impl<O: Known> Door for Of<O> {
    #[inline]
    fn call<'py>(
        &self,
        py: Python<'py>,
        gpu: Option<usize>,
        given: &mut Call<'_, 'py>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let state = state();
        match gpu {
            None => given.on::<O, _>(py, state.desks(), &self.0),
            // There a check of indices would wait for the stream; the operators that have some keep checked copies.
            Some(_) if given.indexed => Err(PyNotImplementedError::new_err(format!(
                "{}: its indices are on a GPU, expected the host; the operator of that name takes them there",
                O::NAME
            ))),
            Some(ordinal) => given.on::<O, _>(py, state.gpu(ordinal)?, &self.0),
        }
    }

    #[inline]
    fn is_torchs(&self, gpu: Option<usize>) -> PyResult<bool> {
        fn of<O: Known + Raced<D>, D: Lent>(desks: &Desks<D>, problem: &O::Problem) -> bool {
            desks.of::<O>().if_known(problem, |entry| entry.undecided && entry.foreign.is_some()).unwrap_or(false)
        }
        let state = state();
        Ok(match gpu {
            None => of::<O, _>(state.desks(), &self.0),
            Some(ordinal) => of::<O, _>(state.gpu(ordinal)?, &self.0),
        })
    }
}

/// How a problem of an operation is read, and whether its kernels look at whole numbers before they follow them.
type Open = fn(&str) -> Result<(Box<dyn Door>, Signature, bool), String>;

/// The operations of the registry by name.
struct Doors(Vec<(&'static str, Open)>);

impl Visitor for Doors {
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
    door: Box<dyn Door>,
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
        static DOORS: OnceLock<Doors> = OnceLock::new();
        let doors = DOORS.get_or_init(|| {
            let mut doors = Doors(Vec::new());
            registry::each(&mut doors);
            doors
        });
        let refused = |why: String| PyValueError::new_err(why);
        let (op, text) = any::problem(problem, None).map_err(|e| refused(e.to_string()))?;
        let open = doors.0.iter().find(|(name, _)| *name == op.name).map(|(_, open)| open);
        let open = open.ok_or_else(|| refused(format!("the operation {} is not in the registry", op.name)))?;
        let (door, signature, guarded) = open(&text).map_err(refused)?;
        if signature.slots().len() > MOST || signature.slots().iter().any(|s| s.role == Role::Scalar) {
            return Err(PyNotImplementedError::new_err(format!(
                "{}: takes more than {MOST} slots, or a number",
                op.name
            )));
        }
        // Bytes are numbers, not places.
        let wide = |s: &Slot| s.dtype.is_whole() && s.dtype.bytes() > 1;
        let indexed = !guarded && signature.slots().iter().any(|s| s.role == Role::In && wide(s));
        Ok(Prepared { door, signature, indexed, problem: text })
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
        let mut given = Call::new(self.signature.slots(), self.indexed, tensors)?;
        let gpu = argument::place(&given.given())?;
        self.door.call(tensors.py(), gpu, &mut given)
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
        let Ok(mut given) = Call::new(self.signature.slots(), self.indexed, tensors) else { return Ok(None) };
        let Ok(gpu) = argument::place(&given.given()) else { return Ok(None) };
        Ok(direct(py, self.door.call(py, gpu, &mut given))?.flatten())
    }

    /// Whether torch's own function answers because nothing was decided: then it may as well be called itself.
    #[pyo3(signature = (gpu=None))]
    fn is_torchs(&self, gpu: Option<usize>) -> PyResult<bool> {
        self.door.is_torchs(gpu)
    }

    fn __repr__(&self) -> String {
        format!("Prepared({:?})", self.problem)
    }
}
