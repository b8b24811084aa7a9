//! Tensors: a Python object comes in; address, type, shape and strides of its memory go out, without a copy.
//!
//! torch tensors come through the DLPack C exchange API (no allocation, no reference counting), everything else through
//! `__array_interface__`, `__cuda_array_interface__` or `__dlpack__`.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{ffi, intern};
use warplap::DType;
use warplap::cpu::{Slice, SliceMut};

use crate::call::torch::Torch;
use crate::tensor::dlpack::{self, DlManaged, DlManagedVersioned, DlTensor, DlType};

/// Dimensions a tensor may have here.
pub(crate) const DIMS: usize = 6;

/// What one element is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    Float(DType),
    Other(DlType),
}

impl Element {
    fn of(dtype: DlType) -> Self {
        match (dtype.code, dtype.bits, dtype.lanes) {
            (2, 32, 1) => Element::Float(DType::F32),
            (2, 16, 1) => Element::Float(DType::F16),
            (4, 16, 1) => Element::Float(DType::Bf16),
            (2, 64, 1) => Element::Float(DType::F64),
            (0, 32, 1) => Element::Float(DType::I32),
            (0, 8, 1) => Element::Float(DType::I8),
            (10, 8, 1) => Element::Float(DType::F8E4m3),
            (0, 64, 1) => Element::Float(DType::I64),
            (6, 8, 1) => Element::Float(DType::Bool),
            _ => Element::Other(dtype),
        }
    }

    /// The name people know it by.
    pub(crate) fn name(self) -> String {
        match self {
            Element::Float(dtype) => DlType::of(dtype).1.into(),
            Element::Other(DlType { code, bits, .. }) => {
                let kind = match code {
                    0 => "int",
                    1 => "uint",
                    2 => "float",
                    5 => "complex",
                    _ => "type",
                };
                format!("{kind}{bits}")
            }
        }
    }
}

/// Borrowed memory of a Python object. Valid for as long as the object is alive and not resized.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) address: usize,
    pub(crate) device: dlpack::DlDevice,
    pub(crate) element: Element,
    pub(crate) ndim: usize,
    pub(crate) shape: [i64; DIMS],
    pub(crate) strides: [i64; DIMS],
    pub(crate) read_only: bool,
    span: Option<usize>,
    // Keeps a capsule's memory alive.
    _keep: Option<Py<PyAny>>,
}

impl View {
    /// The transposed matrix: the same memory, read the other way.
    pub(crate) fn turned(mut self) -> View {
        self.shape.swap(0, 1);
        self.strides.swap(0, 1);
        self
    }

    /// The memory of any object that shows some. `name` is the argument's name in messages.
    pub(crate) fn of(object: &Bound<'_, PyAny>, name: &str) -> PyResult<View> {
        let py = object.py();
        if let Some(torch) = Torch::here(py).filter(|t| t.is_tensor(object)) {
            return torch.view(object, name);
        }
        if let Ok(interface) = object.getattr(intern!(py, "__array_interface__")) {
            return View::of_interface(&interface, dlpack::CPU, object, name);
        }
        if let Ok(interface) = object.getattr(intern!(py, "__cuda_array_interface__")) {
            return View::of_interface(&interface, dlpack::CUDA, object, name);
        }
        if object.hasattr(intern!(py, "__dlpack__"))? {
            return View::of_capsule(object, name);
        }
        let kind = object.get_type().name()?;
        Err(PyTypeError::new_err(format!(
            "{name}: expected a tensor or an array (torch, NumPy, or anything with __dlpack__), found {kind}"
        )))
    }

    /// # Safety
    /// `tensor` is whole, and its memory stays as long as the view is used.
    pub(crate) unsafe fn of_dlpack(tensor: &DlTensor, name: &str) -> PyResult<View> {
        let ndim = usize::try_from(tensor.ndim).unwrap_or(usize::MAX);
        if ndim > DIMS {
            return Err(PyValueError::new_err(format!("{name}: has {ndim} dimensions, expected at most {DIMS}")));
        }
        let (mut shape, mut strides) = ([1; DIMS], [0; DIMS]);
        for (d, size) in shape.iter_mut().enumerate().take(ndim) {
            // SAFETY: a whole tensor has `ndim` sizes.
            *size = unsafe { *tensor.shape.add(d) };
        }
        if tensor.strides.is_null() {
            compact(&shape[..ndim], &mut strides);
        } else {
            for (d, stride) in strides.iter_mut().enumerate().take(ndim) {
                // SAFETY: a whole tensor with strides has `ndim` of them.
                *stride = unsafe { *tensor.strides.add(d) };
            }
        }
        let address = tensor.data as usize + tensor.byte_offset as usize;
        let (element, span) = (Element::of(tensor.dtype), spanned(&shape[..ndim], &strides));
        let device = tensor.device;
        Ok(View { address, device, element, ndim, shape, strides, read_only: false, span, _keep: None })
    }

    pub(crate) fn of_capsule(object: &Bound<'_, PyAny>, name: &str) -> PyResult<View> {
        let py = object.py();
        let versioned = PyDict::new(py);
        versioned.set_item("max_version", (1, 0))?;
        let call = object.getattr(intern!(py, "__dlpack__"))?;
        let capsule = call.call((), Some(&versioned)).or_else(|_| call.call0())?;
        let pointer = |name: &std::ffi::CStr| {
            // SAFETY: asks the capsule for its pointer by name; an object that is none gives null and an error.
            let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()) };
            if pointer.is_null() {
                drop(PyErr::take(py));
            }
            pointer
        };
        let new = pointer(c"dltensor_versioned").cast::<DlManagedVersioned>();
        let old = pointer(c"dltensor").cast::<DlManaged>();
        let mut view = if !new.is_null() {
            // SAFETY: the producer's capsule holds this structure; it is kept alive with the view, not consumed.
            let managed = unsafe { &*new };
            // SAFETY: as above.
            let mut view = unsafe { View::of_dlpack(&managed.tensor, name)? };
            view.read_only = managed.flags & dlpack::READ_ONLY != 0;
            view
        } else if !old.is_null() {
            // SAFETY: as above.
            unsafe { View::of_dlpack(&(*old).tensor, name)? }
        } else {
            return Err(PyTypeError::new_err(format!("{name}: its __dlpack__ gave no DLPack capsule")));
        };
        view._keep = Some(capsule.unbind());
        Ok(view)
    }

    fn of_interface(interface: &Bound<'_, PyAny>, kind: i32, owner: &Bound<'_, PyAny>, name: &str) -> PyResult<View> {
        let bad = |what: &str| PyTypeError::new_err(format!("{name}: its array interface has no {what}"));
        let get = |key: &str| interface.get_item(key);
        let (address, read_only): (usize, bool) = get("data")?.extract().map_err(|_| bad("address"))?;
        let sizes: Vec<i64> = get("shape")?.extract()?;
        let typestr: String = get("typestr")?.extract()?;
        if sizes.len() > DIMS {
            let answer = sizes.len();
            return Err(PyValueError::new_err(format!("{name}: has {answer} dimensions, expected at most {DIMS}")));
        }
        let (order, number) = typestr.split_at_checked(1).ok_or_else(|| bad("type"))?;
        let (code, bytes) = number.split_at_checked(1).ok_or_else(|| bad("type"))?;
        let bytes: u8 = bytes.parse().map_err(|_| bad("type of numbers"))?;
        if order == ">" && bytes > 1 {
            return Err(PyTypeError::new_err(format!("{name}: has swapped bytes, expected native ones")));
        }
        let code = match code {
            "i" => 0,
            "u" => 1,
            "f" => 2,
            "c" => 5,
            "b" => 6,
            _ => return Err(PyTypeError::new_err(format!("{name}: holds '{typestr}', expected numbers"))),
        };
        let element = Element::of(DlType { code, bits: bytes.saturating_mul(8), lanes: 1 });
        let (mut shape, mut strides) = ([1; DIMS], [0; DIMS]);
        shape[..sizes.len()].copy_from_slice(&sizes);
        match get("strides").ok().and_then(|s| s.extract::<Option<Vec<i64>>>().ok()).flatten() {
            None => compact(&sizes, &mut strides),
            Some(steps) => {
                for (stride, step) in strides.iter_mut().zip(steps) {
                    if step % i64::from(bytes) != 0 {
                        let reason = format!("{name}: has a stride of {step} bytes, expected multiples of {bytes}");
                        return Err(PyValueError::new_err(reason));
                    }
                    *stride = step / i64::from(bytes);
                }
            }
        }
        let (ndim, device) = (sizes.len(), dlpack::DlDevice { kind, index: 0 });
        let (span, keep) = (spanned(&sizes, &strides), Some(owner.clone().unbind()));
        Ok(View { address, device, element, ndim, shape, strides, read_only, span, _keep: keep })
    }

    /// Memory that lies like this, with at most so many dimensions as there may be.
    #[inline]
    pub(crate) fn laid_out(
        address: usize,
        device: dlpack::DlDevice,
        dtype: DType,
        sizes: &[i64],
        steps: &[i64],
    ) -> View {
        let ndim = sizes.len().min(DIMS);
        let (mut shape, mut strides) = ([1; DIMS], [0; DIMS]);
        shape[..ndim].copy_from_slice(&sizes[..ndim]);
        strides[..ndim].copy_from_slice(&steps[..ndim]);
        let (element, span) = (Element::Float(dtype), spanned(&shape[..ndim], &strides));
        View { address, device, element, ndim, shape, strides, read_only: false, span, _keep: None }
    }

    /// Indices that somebody keeps in one place for as long as the view is used.
    pub(crate) fn of_indices(address: usize, len: usize, device: dlpack::DlDevice) -> View {
        let (mut shape, mut strides) = ([1; DIMS], [0; DIMS]);
        (shape[0], strides[0]) = (len as i64, 1);
        let element = Element::Float(DType::I32);
        View { address, device, element, ndim: 1, shape, strides, read_only: true, span: Some(len), _keep: None }
    }

    /// Its sizes.
    pub(crate) fn sizes(&self) -> &[i64] {
        &self.shape[..self.ndim]
    }

    /// Whether the host may read it.
    pub(crate) fn on_host(&self) -> bool {
        matches!(self.device.kind, dlpack::CPU | dlpack::CUDA_HOST)
    }

    /// The GPU it is on, if it is on one.
    #[inline]
    pub(crate) fn cuda(&self) -> Option<usize> {
        (self.device.kind == dlpack::CUDA).then_some(self.device.index.max(0) as usize)
    }

    /// Where it is, in words.
    pub(crate) fn place(&self) -> String {
        match self.cuda() {
            Some(ordinal) => format!("cuda:{ordinal}"),
            None if self.on_host() => "the host".into(),
            None => format!("device {}:{} (DLPack)", self.device.kind, self.device.index),
        }
    }

    /// Whether it is row-major without gaps.
    pub(crate) fn is_compact(&self) -> bool {
        let mut expected = 1;
        for d in (0..self.ndim).rev() {
            if self.shape[d] != 1 && self.strides[d] != expected {
                return false;
            }
            expected *= self.shape[d];
        }
        true
    }

    /// Elements from the first to the last, both included; `None` with a negative stride.
    #[inline]
    pub(crate) fn span(&self) -> Option<usize> {
        self.span
    }

    /// The memory for reading.
    ///
    /// # Safety
    /// The object is alive for `'a`, spans `len` elements, and nobody resizes it meanwhile.
    pub(crate) unsafe fn slice<'a>(&self, len: usize) -> Option<Slice<'a>> {
        macro_rules! typed {
            ($($dtype:ident),*) => {
                match self.element {
                    // SAFETY: the caller's word; an address of no elements is never read.
                    $(Element::Float(DType::$dtype) => Some(Slice::$dtype(unsafe { raw(self.address, len) })),)*
                    _ => None,
                }
            };
        }
        if !self.is_aligned() {
            return None;
        }
        typed!(F64, F32, F16, Bf16, I64, I32, I8, F8E4m3, Bool)
    }

    /// The memory for writing.
    ///
    /// # Safety
    /// As [`View::slice`], and nobody else reads or writes these elements for `'a`.
    pub(crate) unsafe fn slice_mut<'a>(&self, len: usize) -> Option<SliceMut<'a>> {
        macro_rules! typed {
            ($($dtype:ident),*) => {
                match self.element {
                    // SAFETY: the caller's word.
                    $(Element::Float(DType::$dtype) => Some(SliceMut::$dtype(unsafe { raw_mut(self.address, len) })),)*
                    _ => None,
                }
            };
        }
        if !self.is_aligned() {
            return None;
        }
        typed!(F64, F32, F16, Bf16, I64, I32, I8, F8E4m3, Bool)
    }

    /// Whether elements lie on addresses their type may have.
    fn is_aligned(&self) -> bool {
        match self.element {
            Element::Float(dtype) => self.lies_on(dtype.bytes()),
            _ => self.lies_on(8),
        }
    }

    /// Whether its address is a multiple of so many bytes, a power of two.
    #[inline]
    pub(crate) fn lies_on(&self, bytes: usize) -> bool {
        self.address & bytes.wrapping_sub(1) == 0
    }

    /// The addresses from its first byte to behind its last.
    #[inline]
    pub(crate) fn bytes(&self) -> std::ops::Range<usize> {
        let size = match self.element {
            Element::Float(dtype) => dtype.bytes(),
            _ => 8,
        };
        self.address..self.address.saturating_add(self.span().unwrap_or(0).saturating_mul(size))
    }
}

unsafe fn raw<'a, T>(address: usize, len: usize) -> &'a [T] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's word.
    unsafe { std::slice::from_raw_parts(address as *const T, len) }
}

unsafe fn raw_mut<'a, T>(address: usize, len: usize) -> &'a mut [T] {
    if len == 0 {
        return &mut [];
    }
    // SAFETY: the caller's word.
    unsafe { std::slice::from_raw_parts_mut(address as *mut T, len) }
}

/// Elements from the first to the last, both included; `None` with a negative size or stride.
#[inline]
fn spanned(shape: &[i64], strides: &[i64; DIMS]) -> Option<usize> {
    let mut last = 0i64;
    for (size, stride) in shape.iter().zip(strides) {
        match *size {
            0 => return Some(0),
            1 => {}
            size if size < 0 || *stride < 0 => return None,
            size => last = last.checked_add((size - 1).checked_mul(*stride)?)?,
        }
    }
    usize::try_from(last.checked_add(1)?).ok()
}

/// Strides of a row-major tensor without gaps.
pub(crate) fn compact(shape: &[i64], strides: &mut [i64; DIMS]) {
    let mut step = 1i64;
    for d in (0..shape.len()).rev() {
        strides[d] = step;
        step = step.saturating_mul(shape[d].max(1));
    }
}
