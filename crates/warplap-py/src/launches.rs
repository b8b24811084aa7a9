//! Launches of compiled Triton kernels: the arguments of a call come in; the kernel that was compiled for arguments like
//! these is launched at once.
//!
//! Triton compiles a kernel anew for other types, for pointers and sizes that are not divisible by 16, and for sizes that
//! are 1. Arguments that agree in all this, and in the values the configs are chosen by, have the same compiled kernel.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::FixedState;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyTuple};

use crate::tensor::Element;
use crate::torch::Torch;

/// What tells the calls of a kernel apart: two words an argument, then the device.
type Name = Vec<u64>;

/// A compiled kernel and what its launcher takes besides the arguments.
struct Plan {
    launch: Py<PyAny>,
    function: Py<PyAny>,
    cooperative: Py<PyAny>,
    dependent: Py<PyAny>,
    packed: Py<PyAny>,
    tail: Vec<Py<PyAny>>,
    kernel: Py<PyAny>,
    config: Py<PyAny>,
}

/// The compiled kernels of one function, by the arguments they are for.
#[pyclass(frozen, module = "warplap._warplap")]
pub(crate) struct Launches {
    /// Whether the value of an argument decides the config.
    keyed: Vec<bool>,
    device: Py<PyAny>,
    plans: Mutex<HashMap<Name, Arc<Plan>, FixedState>>,
}

/// What tells one argument from others, in two words, and a tensor's address; `None` for what is not followed here.
fn words(torch: &Torch, value: &Bound<'_, PyAny>, keyed: bool) -> Option<([u64; 2], Option<usize>)> {
    // SAFETY: type checks of a live object.
    let is_int = unsafe { ffi::PyLong_CheckExact(value.as_ptr()) } != 0;
    if is_int {
        let v: i64 = value.extract().ok()?;
        let kind = 1 + u64::from(v == 1) + 2 * u64::from(v % 16 == 0) + 4 * u64::from(i32::try_from(v).is_err());
        return Some(([kind, if keyed { v as u64 } else { 0 }], None));
    }
    if torch.is_plain(value) {
        let view = torch.view(value, "argument").ok()?;
        let kind = match view.element {
            Element::Float(dtype) => dtype as u64,
            Element::I64 => 8,
            Element::Other(t) => 16 + (u64::from(t.code) << 8) + (u64::from(t.bits) << 16),
        };
        // Where a tensor is belongs to it: the launcher is given a bare address and checks nothing.
        let place = u64::from(view.device.kind as u32) << 32 | u64::from(view.device.index as u32 & 0xff) << 48;
        let word = place | kind << 1 | u64::from(view.address.is_multiple_of(16));
        return Some(([32, word], Some(view.address)));
    }
    if let Ok(v) = value.cast_exact::<PyBool>() {
        return Some(([33, u64::from(v.is_true())], None));
    }
    if let Ok(v) = value.cast_exact::<PyFloat>() {
        return Some(([34, if keyed { v.value().to_bits() } else { 0 }], None));
    }
    value.is_none().then_some(([35, 0], None))
}

impl Launches {
    fn name(&self, py: Python<'_>, args: &Bound<'_, PyTuple>) -> PyResult<Option<(Name, Vec<Option<usize>>)>> {
        let Some(torch) = Torch::here(py) else { return Ok(None) };
        let (mut name, mut addresses) = (Vec::with_capacity(2 * args.len() + 1), Vec::with_capacity(args.len()));
        for (i, value) in args.iter_borrowed().enumerate() {
            let Some((words, address)) = words(torch, &value, self.keyed.get(i).copied().unwrap_or(false)) else {
                return Ok(None);
            };
            name.extend(words);
            addresses.push(address);
        }
        name.push(self.device.bind(py).call0()?.extract()?);
        Ok(Some((name, addresses)))
    }
}

#[pymethods]
impl Launches {
    /// `keyed` says of each argument whether its value decides the config; `device` gives the current device's number.
    #[new]
    fn new(keyed: Vec<bool>, device: Py<PyAny>) -> Self {
        Launches { keyed, device, plans: Mutex::default() }
    }

    /// Launches the kernel for these arguments on the current stream. `grid` is a tuple, or a callable that is given the
    /// arguments by name. None where no kernel is known.
    fn launch<'py>(
        &self,
        py: Python<'py>,
        grid: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        names: &Bound<'py, PyTuple>,
    ) -> PyResult<Option<(Py<PyAny>, Py<PyAny>)>> {
        let Some((name, addresses)) = self.name(py, args)? else { return Ok(None) };
        let plan = self.plans.lock().unwrap_or_else(PoisonError::into_inner).get(&name).cloned();
        let (Some(plan), Some(device)) = (plan, name.last()) else { return Ok(None) };
        let sizes = match grid.cast::<PyTuple>() {
            Ok(sizes) => sizes.clone(),
            Err(_) => {
                let meta = pyo3::types::PyDict::new(py);
                let tail = plan.tail.iter().map(|v| v.bind(py).clone());
                for (name, value) in names.iter().zip(args.iter().chain(tail)) {
                    meta.set_item(name, value)?;
                }
                grid.call1((meta,))?.cast_into::<PyTuple>()?
            }
        };
        let stream = Torch::here(py)
            .and_then(|torch| torch.stream(*device as i32))
            .ok_or_else(|| PyRuntimeError::new_err("the current stream is not known"))?;
        let one = 1i32.into_pyobject(py)?.into_any();
        let mut all: Vec<Bound<'py, PyAny>> = Vec::with_capacity(13 + args.len() + plan.tail.len());
        for d in 0..3 {
            all.push(sizes.get_item(d).unwrap_or_else(|_| one.clone()));
        }
        let none = py.None().into_bound(py);
        let own = |value: &Py<PyAny>| value.bind(py).clone();
        all.extend([stream.into_pyobject(py)?.into_any(), own(&plan.function), own(&plan.cooperative)]);
        all.extend([own(&plan.dependent), none.clone(), none.clone(), own(&plan.packed)]);
        all.extend([none.clone(), none.clone(), none]);
        // Asking a tensor for its address, and the driver for the address's owner, is what a launcher spends most of its
        // time on; both are known here.
        for (value, address) in args.iter().zip(addresses) {
            all.push(match address {
                Some(address) => address.into_pyobject(py)?.into_any(),
                None => value,
            });
        }
        all.extend(plan.tail.iter().map(own));
        plan.launch.bind(py).call1(PyTuple::new(py, all)?)?;
        Ok(Some((plan.kernel.clone_ref(py), plan.config.clone_ref(py))))
    }

    /// Keeps a compiled kernel for arguments like these; whether they can be followed.
    #[expect(clippy::too_many_arguments, reason = "a Python method")]
    fn keep(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        launch: Py<PyAny>,
        function: Py<PyAny>,
        cooperative: Py<PyAny>,
        dependent: Py<PyAny>,
        packed: Py<PyAny>,
        tail: Vec<Py<PyAny>>,
        kernel: Py<PyAny>,
        config: Py<PyAny>,
    ) -> PyResult<bool> {
        let Some((name, _)) = self.name(py, args)? else { return Ok(false) };
        let plan = Plan { launch, function, cooperative, dependent, packed, tail, kernel, config };
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let former = plans.insert(name, Arc::new(plan));
        // Let go after the lock: the end of an object may run a program's own code.
        drop(plans);
        drop(former);
        Ok(true)
    }

    /// Forgets all.
    fn clear(&self) {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let left = std::mem::take(&mut *plans);
        drop(plans);
        drop(left);
    }

    fn __len__(&self) -> usize {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}
