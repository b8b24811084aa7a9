//! What torch is about while it is called: whether a mode watches its operations, whether it casts them, whether it
//! keeps what gradients need. Asked on every call, so torch's own functions are called where it exports them (a few
//! nanoseconds); elsewhere Python is asked (a tenth of a microsecond).

use libloading::os::unix::Library;
use pyo3::prelude::*;

use crate::call::torch_library;

/// The length of the stack of modes, `c10::impl::TorchDispatchModeTLS::stack_len()`.
const MODES: &[u8] = b"_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv\0";

/// Whether operations on a kind of device are cast, `at::autocast::is_autocast_enabled(c10::DeviceType)`.
const CASTS: &[u8] = b"_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE\0";

type Count = unsafe extern "C" fn() -> i64;
type Casts = unsafe extern "C" fn(i8) -> bool;
type StateFunction = unsafe extern "C" fn() -> i32;
type Flag = unsafe extern "C" fn() -> bool;

/// torch's functions that say so.
struct Functions {
    modes: Count,
    casts: Casts,
    keeps: Flag,
    /// torch's numbers of the CPU and CUDA.
    devices: [i8; 2],
    _libraries: [Library; 2],
}

impl Functions {
    fn of(torch: &Bound<'_, PyModule>) -> Option<Functions> {
        let (cpu, c10) = (torch_library::of_torch(torch, "torch_cpu")?, torch_library::of_torch(torch, "c10")?);
        // SAFETY: these names stand for functions of these types: the arguments of the two from C++ are part of their
        // names, and what they give has been a number and a truth value for as long as they have had these names.
        unsafe {
            let device = |name: &[u8]| i8::try_from(cpu.get::<StateFunction>(name).ok()?()).ok();
            Some(Functions {
                modes: *c10.get::<Count>(MODES).ok()?,
                casts: *cpu.get::<Casts>(CASTS).ok()?,
                keeps: *cpu.get::<Flag>(b"aoti_torch_grad_mode_is_enabled\0").ok()?,
                devices: [device(b"aoti_torch_device_type_cpu\0")?, device(b"aoti_torch_device_type_cuda\0")?],
                _libraries: [cpu, c10],
            })
        }
    }
}

/// Whom to ask.
pub(crate) struct TorchDispatchState {
    functions: Option<Functions>,
    grad_enabled: Py<PyAny>,
    modes: Option<Py<PyAny>>,
    autocast: Option<Py<PyAny>>,
}

impl TorchDispatchState {
    pub(crate) fn of(torch: &Bound<'_, PyModule>) -> PyResult<TorchDispatchState> {
        let internal = torch.getattr("_C")?;
        let optional = |name: &str| internal.getattr(name).ok().map(Bound::unbind);
        let mut dispatch_state = TorchDispatchState {
            functions: None,
            grad_enabled: torch.getattr("is_grad_enabled")?.unbind(),
            modes: optional("_len_torch_dispatch_stack"),
            autocast: optional("_is_any_autocast_enabled"),
        };
        // Functions that say something else than Python does now are not those that are meant.
        let (py, functions) = (torch.py(), Functions::of(torch));
        let said = (dispatch_state.keep_gradients(py)?, dispatch_state.watch(py)?);
        dispatch_state.functions = functions;
        if said != (dispatch_state.keep_gradients(py)?, dispatch_state.watch(py)?) {
            dispatch_state.functions = None;
        }
        Ok(dispatch_state)
    }

    /// Whether what gradients need is kept.
    #[inline]
    pub(crate) fn keep_gradients(&self, py: Python<'_>) -> PyResult<bool> {
        match &self.functions {
            // SAFETY: a function without arguments that reads a value of this thread's.
            Some(functions) => Ok(unsafe { (functions.keeps)() }),
            None => self.grad_enabled.bind(py).call0()?.is_truthy(),
        }
    }

    /// Whether somebody watches operations, or casts them.
    #[inline]
    pub(crate) fn watch(&self, py: Python<'_>) -> PyResult<bool> {
        if let Some(functions) = &self.functions {
            // SAFETY: as above; the numbers of devices are torch's own.
            return Ok(unsafe { (functions.modes)() != 0 || functions.devices.iter().any(|d| (functions.casts)(*d)) });
        }
        for ask in [&self.modes, &self.autocast].into_iter().flatten() {
            if ask.bind(py).call0()?.is_truthy()? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
