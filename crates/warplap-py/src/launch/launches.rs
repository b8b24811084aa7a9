//! Launches of compiled Triton kernels: the arguments of a call come in; the kernel that was compiled for arguments
//! like these is launched at once.
//!
//! Triton compiles a kernel anew for other types, for pointers and sizes that are not divisible by 16, and for sizes
//! that are 1. Arguments that agree in all this, and in the values the configs are chosen by, have the same compiled
//! kernel. A kernel takes its arguments in order, less those it was compiled with, and two addresses of scratch memory.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::FixedState;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use pyo3::{PyTraverseError, PyVisit, ffi, intern};
use warplap::cuda::LaunchShape;

use crate::call::state::state;
use crate::call::torch::Torch;
use crate::launch::parameter::{LaunchName, MOST, Parameter, Read};

/// A compiled kernel.
struct Compiled {
    function: usize,
    threads: u32,
    shared: u32,
    parameters: Vec<Parameter>,
    /// The settings of the config, which follow the arguments of a call.
    tail: Vec<Py<PyAny>>,
    kernel: Py<PyAny>,
    config: Py<PyAny>,
}

/// The compiled kernels of one function, by the arguments they are for.
#[pyclass(frozen, module = "warplap._warplap")]
pub(crate) struct Launches {
    /// Names of the arguments.
    names: Py<PyTuple>,
    /// Whether the value of an argument decides the config.
    keyed: Vec<bool>,
    /// Triton's lists of hooks: while somebody listens, Triton launches.
    hooks: Vec<Py<PyList>>,
    known: Mutex<HashMap<Box<[u64]>, Arc<Compiled>, FixedState>>,
}

impl Launches {
    fn read<'py>(&self, args: &Bound<'py, PyTuple>, name: &mut LaunchName) -> Option<Vec<Read>> {
        let torch = Torch::here(args.py())?;
        if args.len() > MOST {
            return None;
        }
        let mut read = Vec::with_capacity(args.len());
        for (i, value) in args.iter_borrowed().enumerate() {
            read.push(name.add(torch, &value, self.keyed.get(i).copied().unwrap_or(false))?);
        }
        Some(read)
    }

    #[inline]
    fn heard(&self, py: Python<'_>) -> bool {
        self.hooks.iter().any(|calls| !calls.bind(py).is_empty())
    }

    /// Launches what is known for these arguments; nothing where nothing is.
    fn launch(
        &self,
        py: Python<'_>,
        grid: &Grid,
        args: &Bound<'_, PyTuple>,
    ) -> PyResult<Option<(Py<PyAny>, Py<PyAny>)>> {
        let mut name = LaunchName::default();
        let Some(read) = self.read(args, &mut name) else { return Ok(None) };
        let Some(device) = name.device() else { return Ok(None) };
        let compiled = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(name.words()).cloned();
        let Some(compiled) = compiled.filter(|p| p.parameters.len() == read.len()) else { return Ok(None) };
        let sizes = match grid {
            Grid::Sizes(sizes) => *sizes,
            Grid::Call(call) => {
                let meta = PyDict::new(py);
                let values = args.iter().chain(compiled.tail.iter().map(|v| v.bind(py).clone()));
                for (name, value) in self.names.bind(py).iter().zip(values) {
                    meta.set_item(name, value)?;
                }
                sizes(&call.bind(py).call1((meta,))?)?
            }
        };
        if !sizes.contains(&0) {
            compiled.queue(py, device, sizes, &read)?;
        }
        Ok(Some((compiled.kernel.clone_ref(py), compiled.config.clone_ref(py))))
    }
}

impl Compiled {
    fn queue(&self, py: Python<'_>, device: usize, grid: [u32; 3], read: &[Read]) -> PyResult<()> {
        // Two addresses of scratch memory come last; kernels that need any are not kept here.
        let mut slots = [0u64; MOST + 2];
        let mut arguments = [std::ptr::null::<c_void>(); MOST + 2];
        let mut count = 0;
        for (parameter, value) in self.parameters.iter().zip(read) {
            if parameter.pack(*value, &mut slots[count]) {
                arguments[count] = (&raw const slots[count]).cast();
                count += 1;
            }
        }
        for scratch in count..count + 2 {
            arguments[scratch] = (&raw const slots[scratch]).cast();
        }
        let state = state();
        let queue = state.gpu(device)?.queue(py);
        let shape = LaunchShape { grid, threads: self.threads, shared: self.shared, ..LaunchShape::default() };
        // SAFETY: the function is Triton's, loaded for as long as the compiled holds its kernel; the arguments are of
        // the types it was compiled for, and the caller holds the tensors behind the addresses.
        unsafe { queue.launch_foreign(self.function, &shape, [self.threads, 1, 1], &arguments[..count + 2]) }
            .map_err(|e| PyRuntimeError::new_err(e.to_string()))
    }
}

/// How many blocks a launch has: numbers, or a callable that is given the arguments by name.
enum Grid {
    Sizes([u32; 3]),
    Call(Py<PyAny>),
}

fn sizes(grid: &Bound<'_, PyAny>) -> PyResult<[u32; 3]> {
    let mut sizes = [1; 3];
    let answer = grid.cast::<PyTuple>().map_err(|_| PyTypeError::new_err("grid: expected a tuple of numbers"))?;
    if answer.len() > 3 {
        return Err(PyValueError::new_err(format!("grid: has {} sizes, expected at most 3", answer.len())));
    }
    for (to, size) in sizes.iter_mut().zip(answer.iter_borrowed()) {
        *to = size.extract()?;
    }
    Ok(sizes)
}

/// A kernel with its grid: `kernel[grid]`.
#[pyclass(frozen, module = "warplap._warplap")]
pub(crate) struct Launch {
    launches: Py<Launches>,
    grid: Grid,
    passed: Py<PyAny>,
    tuner: Py<PyAny>,
}

#[pymethods]
impl Launch {
    #[pyo3(signature = (*args, **named))]
    fn __call__(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let (launches, tuner) = (self.launches.get(), self.tuner.bind(py));
        if named.is_none_or(|n| n.is_empty())
            && !launches.heard(py)
            && let Some((kernel, config)) = launches.launch(py, &self.grid, args)?
        {
            tuner.setattr(intern!(py, "best_config"), config)?;
            return Ok(kernel);
        }
        let all = match named {
            Some(named) => named.copy()?,
            None => PyDict::new(py),
        };
        all.set_item("grid", &self.passed)?;
        all.set_item("warmup", false)?;
        Ok(tuner.call_method("run", args, Some(&all))?.unbind())
    }

    /// A tuner keeps its launches, which know it: the garbage collector has to see both ways.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.launches)?;
        visit.call(&self.passed)?;
        visit.call(&self.tuner)
    }
}

#[pymethods]
impl Launches {
    /// `names` are those of the arguments, `keyed` says of each whether its value decides the config, and while one of
    /// the lists of `hooks` holds any nothing is launched from here.
    #[new]
    fn new(names: Py<PyTuple>, keyed: Vec<bool>, hooks: Vec<Py<PyList>>) -> Self {
        Launches { names, keyed, hooks, known: Mutex::default() }
    }

    /// The kernel with a grid: a tuple, or a callable that is given the arguments by name. What is not known here goes
    /// to `tuner.run`.
    fn at(slf: &Bound<'_, Self>, tuner: Py<PyAny>, grid: &Bound<'_, PyAny>) -> PyResult<Launch> {
        // SAFETY: asks a live object whether it can be called.
        let callable = unsafe { ffi::PyCallable_Check(grid.as_ptr()) } != 0;
        let (passed, launches) = (grid.clone().unbind(), slf.clone().unbind());
        let grid = if callable { Grid::Call(passed.clone_ref(slf.py())) } else { Grid::Sizes(sizes(grid)?) };
        Ok(Launch { launches, grid, passed, tuner })
    }

    /// Keeps a compiled kernel for arguments like these: the driver's handle of its function, threads of a block, bytes
    /// of shared memory, Triton's types of the arguments and of the config's settings after them. Whether it can be
    /// done.
    #[expect(clippy::too_many_arguments, reason = "a Python method")]
    fn keep(
        &self,
        args: &Bound<'_, PyTuple>,
        function: usize,
        threads: u32,
        shared: u32,
        types: Vec<String>,
        tail: Vec<Py<PyAny>>,
        kernel: Py<PyAny>,
        config: Py<PyAny>,
    ) -> PyResult<bool> {
        let mut name = LaunchName::default();
        let Some(read) = self.read(args, &mut name) else { return Ok(false) };
        let parameters = types.iter().map(|t| Parameter::of(t)).collect::<Option<Vec<_>>>();
        let Some(mut parameters) = parameters.filter(|p| p.len() == read.len() + tail.len()) else { return Ok(false) };
        // What a config sets was compiled in.
        if parameters.split_off(read.len()).iter().any(|p| *p != Parameter::Compiled)
            || !parameters.iter().zip(&read).all(|(p, r)| p.takes(*r))
        {
            return Ok(false);
        }
        let compiled = Compiled { function, threads, shared, parameters, tail, kernel, config };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let former = known.insert(name.words().into(), Arc::new(compiled));
        // Let go after the lock: the end of an object may run a program's own code.
        drop(known);
        drop(former);
        Ok(true)
    }

    /// Forgets all.
    fn clear(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let left = std::mem::take(&mut *known);
        drop(known);
        drop(left);
    }

    fn __len__(&self) -> usize {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}
