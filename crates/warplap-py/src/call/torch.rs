//! torch, where it is there: its tensor types, its exchange API, and the few questions asked of it on every call.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{IntoPyDict, PyType};
use pyo3::{ffi, intern};

use crate::call::torch_dispatch_state::TorchDispatchState;
use crate::tensor::capsule;
use crate::tensor::dlpack::ExchangeApi;
use crate::tensor::new_tensor::{self, Maker};
use crate::tensor::view::{self, DIMS, Element, View};

/// What is kept of torch.
pub(crate) struct Torch {
    tensor: Py<PyType>,
    parameter: Py<PyType>,
    api: Option<*const ExchangeApi>,
    dispatch_state: TorchDispatchState,
    from_dlpack: Py<PyAny>,
    bsr: Py<PyAny>,
    maker: Option<Maker>,
}

/// A new tensor and its memory.
pub(crate) type Made<'py> = (Bound<'py, PyAny>, View);

// SAFETY: the API is a table of functions that lives as long as the process and is called with the interpreter held.
unsafe impl Send for Torch {}
// SAFETY: as above.
unsafe impl Sync for Torch {}

static TORCH: PyOnceLock<Torch> = PyOnceLock::new();

impl Torch {
    /// torch, if the package found it.
    #[inline]
    pub(crate) fn here(py: Python<'_>) -> Option<&'static Torch> {
        TORCH.get(py)
    }

    fn new(torch: &Bound<'_, PyModule>) -> PyResult<Self> {
        let tensor = torch.getattr("Tensor")?.cast_into::<PyType>()?;
        let parameter = torch.getattr("nn")?.getattr("Parameter")?.cast_into::<PyType>()?;
        let names = ["__dlpack_c_exchange_api__", "__c_dlpack_exchange_api__"];
        let api = names.iter().find_map(|name| capsule::exchange_api(&tensor.getattr(*name).ok()?));
        Ok(Torch {
            api,
            dispatch_state: TorchDispatchState::of(torch)?,
            from_dlpack: torch.getattr("from_dlpack")?.unbind(),
            bsr: torch.getattr("sparse_bsr")?.unbind(),
            maker: Maker::of(torch),
            tensor: tensor.unbind(),
            parameter: parameter.unbind(),
        })
    }

    /// Whether an object is a tensor of any kind.
    pub(crate) fn is_tensor(&self, object: &Bound<'_, PyAny>) -> bool {
        self.is_plain(object) || object.is_instance(self.tensor.bind(object.py())).unwrap_or(false)
    }

    /// Whether all are tensors of any kind.
    pub(crate) fn are_tensors(&self, objects: &[&Bound<'_, PyAny>]) -> bool {
        objects.iter().all(|o| self.is_tensor(o))
    }

    /// Whether an object is a tensor of torch's own types, with no behaviour of its own.
    #[inline]
    pub(crate) fn is_plain(&self, object: &Bound<'_, PyAny>) -> bool {
        // SAFETY: reads the type of a live object.
        let kind = unsafe { ffi::Py_TYPE(object.as_ptr()) }.cast::<ffi::PyObject>();
        kind == self.tensor.as_ptr() || kind == self.parameter.as_ptr()
    }

    /// Whether these may be computed with directly: plain tensors, no gradient wanted, nobody watching or casting.
    #[inline]
    pub(crate) fn is_direct(&self, py: Python<'_>, tensors: &[&Bound<'_, PyAny>]) -> PyResult<bool> {
        let mut wants = false;
        for tensor in tensors {
            if !self.is_plain(tensor) {
                return Ok(false);
            }
            wants |= self.wants_gradient(tensor)?;
        }
        Ok(!(wants && self.keeps_gradients(py)? || self.is_watched(py)?))
    }

    /// Whether a gradient of a tensor is wanted, where those are kept.
    #[inline]
    pub(crate) fn wants_gradient(&self, tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(is_true(&tensor.getattr(intern!(tensor.py(), "requires_grad"))?))
    }

    /// Whether what gradients need is kept.
    #[inline]
    pub(crate) fn keeps_gradients(&self, py: Python<'_>) -> PyResult<bool> {
        self.dispatch_state.keep_gradients(py)
    }

    /// Whether somebody watches operations, or casts them.
    #[inline]
    pub(crate) fn is_watched(&self, py: Python<'_>) -> PyResult<bool> {
        self.dispatch_state.watch(py)
    }

    /// Whether a tensor is block-sparse by rows.
    pub(crate) fn is_bsr(&self, tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(tensor.getattr(intern!(tensor.py(), "layout"))?.as_ptr() == self.bsr.as_ptr())
    }

    /// The memory of a tensor. Refused where torch has put a sign off that is not in memory: imaginary parts of conjugated
    /// numbers. Parts of complex numbers lie two apart, so that tensors with neighbours need not be asked.
    #[inline]
    pub(crate) fn view(&self, object: &Bound<'_, PyAny>, name: &str) -> PyResult<View> {
        let py = object.py();
        let view = match self.api {
            // SAFETY: the API came from torch's tensor type, and the object is of it or of a subclass.
            Some(api) => unsafe { capsule::peek(api, object, name) },
            None => View::of_capsule(&object.call_method0(intern!(py, "detach"))?, name),
        }?;
        let mut dims = view.shape.iter().zip(&view.strides).take(view.ndim);
        if !dims.any(|(size, stride)| *size > 1 && *stride == 1)
            && is_true(&object.call_method0(intern!(py, "is_neg"))?)
        {
            let name = if name.is_empty() { "tensor" } else { name };
            return Err(PyValueError::new_err(format!(
                "{name}: its sign is not in memory yet, expected {name}.resolve_neg()"
            )));
        }
        Ok(view)
    }

    /// The current stream of a CUDA device.
    pub(crate) fn stream(&self, device: i32) -> Option<usize> {
        let mut stream = std::ptr::null_mut();
        // SAFETY: the API's contract: 0 means that the stream was written.
        (unsafe { ((*self.api?).stream)(crate::tensor::dlpack::CUDA, device, &mut stream) } == 0)
            .then_some(stream as usize)
    }

    /// Runs a callable with another stream of a CUDA device as torch's current one.
    pub(crate) fn on_stream<R>(
        &self,
        py: Python<'_>,
        stream: usize,
        device: i32,
        call: impl FnOnce() -> PyResult<R>,
    ) -> PyResult<R> {
        if self.stream(device) == Some(stream) {
            return call();
        }
        let cuda = py.import(intern!(py, "torch.cuda"))?;
        let named = [("device", device)].into_py_dict(py)?;
        let external = cuda.getattr(intern!(py, "ExternalStream"))?.call((stream,), Some(&named))?;
        within(&cuda.getattr(intern!(py, "stream"))?.call1((external,))?, call)
    }

    /// A tensor over memory that somebody else owns and keeps.
    pub(crate) fn tensor<'py>(&self, capsule: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = capsule.py();
        self.from_dlpack.bind(py).call1((capsule,))
    }

    /// A new tensor like another with these sizes, row-major, and its memory. `seen` is the other's.
    #[inline]
    pub(crate) fn empty<'py>(&self, like: &Bound<'py, PyAny>, seen: &View, sizes: &[i64]) -> PyResult<Made<'py>> {
        let mut strides = [0; DIMS];
        view::compact(sizes, &mut strides);
        self.empty_strided(like, seen, sizes, &strides[..sizes.len()])
    }

    /// A new tensor like another with these sizes and strides, and its memory. `seen` is the other's.
    #[inline]
    pub(crate) fn empty_strided<'py>(
        &self,
        like: &Bound<'py, PyAny>,
        seen: &View,
        sizes: &[i64],
        strides: &[i64],
    ) -> PyResult<Made<'py>> {
        self.empty_typed(like, seen, seen.element, sizes, strides)
    }

    /// The same with elements of another type.
    #[inline]
    pub(crate) fn empty_typed<'py>(
        &self,
        like: &Bound<'py, PyAny>,
        seen: &View,
        element: Element,
        sizes: &[i64],
        strides: &[i64],
    ) -> PyResult<Made<'py>> {
        if let (Some(maker), Element::Float(dtype)) = (&self.maker, element)
            && let Some(made) = maker.make(like.py(), dtype, seen.device, sizes, strides)
        {
            return made;
        }
        let other = (element != seen.element).then(|| element.name());
        let made = new_tensor::by_python(like, other.as_deref(), sizes, strides)?;
        let view = self.view(&made, "out")?;
        Ok((made, view))
    }
}

/// Runs a callable within a scope of Python's.
fn within<R>(scope: &Bound<'_, PyAny>, call: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    let py = scope.py();
    scope.call_method0(intern!(py, "__enter__"))?;
    let done = call();
    scope.call_method1(intern!(py, "__exit__"), (py.None(), py.None(), py.None()))?;
    done
}

#[inline]
fn is_true(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: compares with the interpreter's one true.
    object.as_ptr() == unsafe { ffi::Py_True() }
}

/// Tells this module of torch.
#[pyfunction]
pub(crate) fn use_torch(torch: &Bound<'_, PyModule>) -> PyResult<bool> {
    let py = torch.py();
    let made = Torch::new(torch)?;
    let exchange = made.api.is_some();
    let _ = TORCH.set(py, made);
    Ok(exchange)
}
