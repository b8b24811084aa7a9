//! Arguments: what every operation asks of its tensors, with messages that name the argument.

use pyo3::exceptions::{PyNotImplementedError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use warplap::{DType, Layout};

use crate::tensor::view::{Element, View};

/// The largest size of one dimension and the most elements of one tensor.
const MAX_SIZE: i64 = warplap::core::problem::MAX_SIZE as i64;
const MAX_ELEMENTS: usize = 1 << 31;

/// What a call has for one slot: a tensor's memory, or nothing.
#[derive(Clone, Copy)]
pub(crate) struct CallArgument<'a> {
    pub(crate) name: &'a str,
    pub(crate) view: Option<&'a View>,
    pub(crate) written: bool,
}

impl<'a> CallArgument<'a> {
    /// The problem does not have the slot.
    pub(crate) const NONE: CallArgument<'static> = CallArgument { name: "", view: None, written: false };

    /// Memory that is read.
    pub(crate) fn read(name: &'a str, view: &'a View) -> Self {
        CallArgument { name, view: Some(view), written: false }
    }

    /// Memory that is written.
    pub(crate) fn write(name: &'a str, view: &'a View) -> Self {
        CallArgument { name, view: Some(view), written: true }
    }

    /// Memory that is read, or nothing.
    pub(crate) fn maybe(name: &'a str, view: Option<&'a View>) -> Self {
        CallArgument { name, view, written: false }
    }
}

/// Memory by slot that kernels may be given: all in one place, and what is written shares nothing with the others.
pub(crate) struct Checked<'a, const N: usize> {
    passed: [CallArgument<'a>; N],
    gpu: Option<usize>,
}

impl<'a, const N: usize> Checked<'a, N> {
    /// One a slot.
    #[inline]
    pub(crate) fn call_arguments(&self) -> &[CallArgument<'a>; N] {
        &self.passed
    }

    /// The GPU they are on, if they are on one.
    #[inline]
    pub(crate) fn gpu(&self) -> Option<usize> {
        self.gpu
    }
}

fn all<'g, 'a>(passed: &'g [CallArgument<'a>]) -> impl Iterator<Item = (&'g CallArgument<'a>, &'a View)> {
    passed.iter().filter_map(|g| Some((g, g.view?)))
}

/// The GPU that all are on, if they are on one; or they are all on the host.
#[inline]
pub(crate) fn place(passed: &[CallArgument<'_>]) -> PyResult<Option<usize>> {
    let Some((first, place)) = all(passed).next() else { return Ok(None) };
    let gpu = place.cuda();
    if gpu.is_none() && !place.on_host() {
        let (name, answer) = (first.name, place.place());
        let what = format!("{name}: is on {answer}, expected memory of the host or of an NVIDIA GPU");
        return Err(PyNotImplementedError::new_err(what));
    }
    let apart = |v: &View| v.device != place.device && !(v.on_host() && place.on_host());
    match all(passed).find(|(_, view)| apart(view)) {
        Some((one, view)) => {
            let (name, answer, expected) = (one.name, view.place(), place.place());
            Err(PyValueError::new_err(format!("{name}: is on {answer}, expected all tensors on {expected}")))
        }
        None => Ok(gpu),
    }
}

/// Checks that all are in one place and that what is written may be, and shares nothing with the others.
#[inline]
pub(crate) fn checked<const N: usize>(passed: [CallArgument<'_>; N]) -> PyResult<Checked<'_, N>> {
    let gpu = place(&passed)?;
    for (one, view) in all(&passed).filter(|(one, _)| one.written) {
        if view.read_only {
            return Err(PyValueError::new_err(format!("{}: is read-only", one.name)));
        }
        let own = view.bytes();
        let shared = |(other, v): &(&CallArgument<'_>, &View)| {
            let bytes = v.bytes();
            !std::ptr::eq(*other, one) && own.start < bytes.end && bytes.start < own.end
        };
        if let Some((other, _)) = all(&passed).find(shared) {
            return Err(PyValueError::new_err(format!("{}: shares memory with {}", one.name, other.name)));
        }
    }
    Ok(Checked { passed, gpu })
}

/// The float type that all hold.
#[inline]
pub(crate) fn floats(tensors: &[(&str, &View)]) -> PyResult<DType> {
    let (first, view) = tensors[0];
    let Element::Float(dtype @ (DType::F32 | DType::F16 | DType::Bf16)) = view.element else {
        let answer = view.element.name();
        return Err(PyTypeError::new_err(format!("{first}: holds {answer}, expected float32, float16 or bfloat16")));
    };
    for (name, view) in &tensors[1..] {
        same(view, name, dtype, first)?;
    }
    Ok(dtype)
}

/// Checks that a tensor holds a type.
#[inline]
pub(crate) fn same(view: &View, name: &str, dtype: DType, like: &str) -> PyResult<()> {
    if view.element == Element::Float(dtype) {
        return Ok(());
    }
    let (answer, expected) = (view.element.name(), Element::Float(dtype).name());
    Err(PyTypeError::new_err(format!("{name}: holds {answer}, expected {expected} like {like}")))
}

/// Checks the number of dimensions.
pub(crate) fn dims(view: &View, name: &str, expected: usize) -> PyResult<()> {
    if view.ndim == expected {
        return Ok(());
    }
    Err(PyValueError::new_err(format!("{name}: has {} dimensions, expected {expected}", view.ndim)))
}

/// Checks a shape.
pub(crate) fn shape(view: &View, name: &str, expected: &[i64]) -> PyResult<()> {
    if view.sizes() == expected {
        return Ok(());
    }
    Err(PyValueError::new_err(format!("{name}: has shape {:?}, expected {expected:?}", view.sizes())))
}

/// Checks that sizes are within what the operations take.
pub(crate) fn sizes(view: &View, name: &str) -> PyResult<()> {
    if let Some(size) = view.sizes().iter().find(|s| !(1..=MAX_SIZE).contains(*s)) {
        return Err(PyValueError::new_err(format!("{name}: has a size of {size}, expected 1 to {MAX_SIZE}")));
    }
    match view.span() {
        Some(span) if span <= MAX_ELEMENTS => Ok(()),
        _ => Err(PyValueError::new_err(format!(
            "{name}: spans more than {MAX_ELEMENTS} elements or runs backwards; expected a smaller or contiguous one"
        ))),
    }
}

/// Checks that a tensor is row-major without gaps.
pub(crate) fn compact(view: &View, name: &str, expected: &str) -> PyResult<()> {
    if view.is_compact() { Ok(()) } else { Err(strided(view, name, expected)) }
}

/// The order of a matrix that has no gaps.
pub(crate) fn order(view: &View, name: &str) -> PyResult<Layout> {
    if view.is_compact() {
        Ok(Layout::Row)
    } else if view.strides[0] == 1 && view.strides[1] == view.shape[0] {
        Ok(Layout::Col)
    } else {
        Err(strided(view, name, "rows or columns without gaps"))
    }
}

/// A tensor whose strides the operation cannot follow.
pub(crate) fn strided(view: &View, name: &str, expected: &str) -> PyErr {
    let strides = &view.strides[..view.ndim];
    PyValueError::new_err(format!("{name}: has strides {strides:?}, expected {expected}; call .contiguous()"))
}

/// A tensor whose elements are not where kernels can read them.
pub(crate) fn unaligned(name: &str, bytes: usize) -> PyErr {
    PyValueError::new_err(format!("{name}: is not on a multiple of {bytes} bytes; call .clone()"))
}
