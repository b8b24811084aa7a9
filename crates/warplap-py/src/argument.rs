//! Arguments: what every operation asks of its tensors, with messages that name the argument.

use pyo3::exceptions::{PyNotImplementedError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use warplap::{DType, Layout};

use crate::tensor::{Element, View};

/// The largest size of one dimension and the most elements of one tensor.
const MAX_SIZE: i64 = warplap::core::problem::MAX_SIZE as i64;
const MAX_ELEMENTS: usize = 1 << 31;

/// The float type of an input.
pub(crate) fn float(view: &View, name: &str) -> PyResult<DType> {
    match view.element {
        Element::Float(dtype @ (DType::F32 | DType::F16 | DType::Bf16)) => Ok(dtype),
        other => {
            let found = other.name();
            Err(PyTypeError::new_err(format!("{name}: holds {found}, expected float32, float16 or bfloat16")))
        }
    }
}

/// Checks that a tensor holds a type.
pub(crate) fn same(view: &View, name: &str, dtype: DType, like: &str) -> PyResult<()> {
    if view.element == Element::Float(dtype) {
        return Ok(());
    }
    let (found, expected) = (view.element.name(), Element::Float(dtype).name());
    Err(PyTypeError::new_err(format!("{name}: holds {found}, expected {expected} like {like}")))
}

/// Checks that a tensor is where another is.
pub(crate) fn together(view: &View, name: &str, first: &View) -> PyResult<()> {
    if view.on_host() && first.on_host() || view.device == first.device {
        return Ok(());
    }
    let (found, expected) = (view.place(), first.place());
    Err(PyValueError::new_err(format!("{name}: is on {found}, expected all tensors on {expected}")))
}

/// Checks that the host can read a tensor.
pub(crate) fn on_host(view: &View, name: &str) -> PyResult<()> {
    if view.on_host() {
        return Ok(());
    }
    let what = format!("{name}: is on {}, expected memory of the host", view.place());
    Err(PyNotImplementedError::new_err(what))
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

/// Checks that an output may be written and shares nothing with the inputs.
pub(crate) fn output(out: &View, len: usize, inputs: &[(&str, &View, usize)]) -> PyResult<()> {
    if out.read_only {
        return Err(PyValueError::new_err("out: is read-only"));
    }
    match inputs.iter().find(|(_, view, input_len)| out.overlaps(len, view, *input_len)) {
        Some((name, ..)) => Err(PyValueError::new_err(format!("out: shares memory with {name}"))),
        None => Ok(()),
    }
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

/// A tensor whose elements are not where their type may lie.
pub(crate) fn unaligned(name: &str) -> PyErr {
    PyValueError::new_err(format!("{name}: does not lie on an address its type may have"))
}
