//! New tensors of torch: a type, a device, sizes and strides come in; a Python tensor whose elements nobody has set goes
//! out.
//!
//! A call of `new_empty` through Python costs more than a small product. torch exports functions in C for programs that
//! it has compiled ahead, and its own function that wraps a tensor for Python: together they take a third of the time.
//! They are looked up by name in the libraries that torch has loaded, tried once, and where one is missing or gives
//! anything else than expected, tensors are made through Python.

use std::ffi::c_void;

use libloading::os::unix::Library;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{ffi, intern};
use warplap::DType;

use crate::call::torch_library;
use crate::tensor::dlpack::{self, DlDevice};
use crate::tensor::view::{Element, View};

/// A tensor of torch's, as its functions in C name it.
type Handle = *mut c_void;
type Empty = unsafe extern "C" fn(i64, *const i64, *const i64, i32, i32, i32, *mut Handle) -> i32;
type Data = unsafe extern "C" fn(Handle, *mut *mut c_void) -> i32;
type Delete = unsafe extern "C" fn(Handle) -> i32;
type Wrap = unsafe extern "C" fn(Handle) -> *mut ffi::PyObject;
type Number = unsafe extern "C" fn() -> i32;

/// The function that gives a tensor to Python, by its name in C++: `THPVariable_Wrap(const at::TensorBase&)`.
const WRAP: &[u8] = b"_Z16THPVariable_WrapRKN2at10TensorBaseE\0";

/// torch's functions that make a tensor.
pub(crate) struct Maker {
    empty: Empty,
    data: Data,
    delete: Delete,
    wrap: Wrap,
    /// torch's numbers of f32, f16 and bf16, and of the CPU and CUDA.
    dtypes: [i32; 3],
    devices: [i32; 2],
    _libraries: [Library; 2],
}

impl Maker {
    /// The functions of the torch in this folder, if they are there and do what they should.
    pub(crate) fn of(torch: &Bound<'_, PyModule>) -> Option<Maker> {
        let maker = Maker::open(torch)?;
        let tried = maker.make(torch.py(), DType::F16, DlDevice { kind: dlpack::CPU, index: 0 }, &[3, 2], &[1, 4]);
        let (tensor, made) = tried?.ok()?;
        let seen = View::of_capsule(&tensor, "tried").ok()?;
        let right = seen.element == Element::Float(DType::F16) && seen.on_host() && seen.address == made.address;
        (right && seen.sizes() == [3, 2] && seen.strides[..2] == [1, 4]).then_some(maker)
    }

    fn open(torch: &Bound<'_, PyModule>) -> Option<Maker> {
        let (cpu, python) =
            (torch_library::of_torch(torch, "torch_cpu")?, torch_library::of_torch(torch, "torch_python")?);
        // SAFETY: these names stand for functions of these types wherever torch exports them; a tensor's base is its
        // first part, so that a handle, which points to a tensor, is a reference to it.
        unsafe {
            let number = |name: &str| cpu.get::<Number>(format!("aoti_torch_{name}\0").as_bytes()).map(|f| f()).ok();
            let dtypes = [number("dtype_float32")?, number("dtype_float16")?, number("dtype_bfloat16")?];
            let devices = [number("device_type_cpu")?, number("device_type_cuda")?];
            Some(Maker {
                empty: *cpu.get::<Empty>(b"aoti_torch_empty_strided\0").ok()?,
                data: *cpu.get::<Data>(b"aoti_torch_get_data_ptr\0").ok()?,
                delete: *cpu.get::<Delete>(b"aoti_torch_delete_tensor_object\0").ok()?,
                wrap: *python.get::<Wrap>(WRAP).ok()?,
                dtypes,
                devices,
                _libraries: [cpu, python],
            })
        }
    }

    /// A new tensor and its memory; `None` where it is of a type or on a device that these functions are not asked for.
    #[inline]
    pub(crate) fn make<'py>(
        &self,
        py: Python<'py>,
        dtype: DType,
        device: DlDevice,
        sizes: &[i64],
        strides: &[i64],
    ) -> Option<PyResult<(Bound<'py, PyAny>, View)>> {
        let number = match dtype {
            DType::F32 => self.dtypes[0],
            DType::F16 => self.dtypes[1],
            DType::Bf16 => self.dtypes[2],
            _ => return None,
        };
        let (kind, index) = match device.kind {
            dlpack::CPU => (self.devices[0], 0),
            dlpack::CUDA => (self.devices[1], device.index),
            _ => return None,
        };
        let (mut handle, mut data): (Handle, _) = (std::ptr::null_mut(), std::ptr::null_mut());
        let ndim = sizes.len().min(strides.len()) as i64;
        // SAFETY: there are as many sizes and strides as dimensions; 0 means that the handle was written, which is then
        // ours to give back. Wrapping takes a share of the tensor of its own, with the interpreter held.
        Some(unsafe {
            if (self.empty)(ndim, sizes.as_ptr(), strides.as_ptr(), number, kind, index, &mut handle) != 0 {
                return Some(Err(PyRuntimeError::new_err("out: torch gave no memory for it")));
            }
            let (object, answer) = ((self.wrap)(handle), (self.data)(handle, &mut data));
            (self.delete)(handle);
            if answer != 0 {
                return Some(Err(PyRuntimeError::new_err("out: torch did not say where its memory is")));
            }
            let view = View::laid_out(data as usize, device, dtype, sizes, strides);
            Bound::from_owned_ptr_or_err(py, object).map(|object| (object, view))
        })
    }
}

/// A new tensor like another through Python, with elements of another type where one is named.
pub(crate) fn by_python<'py>(
    like: &Bound<'py, PyAny>,
    element: Option<&str>,
    sizes: &[i64],
    strides: &[i64],
) -> PyResult<Bound<'py, PyAny>> {
    let py = like.py();
    let named = PyDict::new(py);
    if let Some(element) = element {
        named.set_item(intern!(py, "dtype"), py.import(intern!(py, "torch"))?.getattr(element)?)?;
    }
    let has_layout = (PyTuple::new(py, sizes)?, PyTuple::new(py, strides)?);
    like.call_method(intern!(py, "new_empty_strided"), has_layout, Some(&named))
}
