//! How tensors lie: torch's tensors of a call come in, bytes go out that are equal where the same prepared call will do.
//! Python keeps its calls by them: to ask every tensor for its shape, strides and address takes it longer than a kernel.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::call::torch::Torch;
use crate::tensor::view::{Element, View};

/// Alignments beyond this are all alike.
const ALIGN: usize = 64;

/// Types, shapes, strides and alignments of plain tensors (None stands for one that is not given). None where a call over
/// them cannot go straight to its kernel: a gradient is wanted, somebody watches or casts, or one has a mind of its own.
#[pyfunction]
#[pyo3(signature = (*tensors))]
pub(crate) fn layout_key<'py>(tensors: &Bound<'py, PyTuple>) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let py = tensors.py();
    let Some(torch) = Torch::here(py) else { return Ok(None) };
    let present: Vec<Bound<'py, PyAny>> = tensors.iter().filter(|tensor| !tensor.is_none()).collect();
    if !torch.is_direct(py, &present.iter().collect::<Vec<_>>())? {
        return Ok(None);
    }
    let mut key = Vec::with_capacity(48 * tensors.len());
    for tensor in tensors.iter() {
        if tensor.is_none() {
            key.push(0);
            continue;
        }
        // What has no memory that can be named takes the general way, which says why.
        let Ok(view) = torch.view(&tensor, "") else { return Ok(None) };
        if !append(&view, &mut key) {
            return Ok(None);
        }
    }
    Ok(Some(PyBytes::new(py, &key)))
}

fn append(view: &View, key: &mut Vec<u8>) -> bool {
    let Element::Float(dtype) = view.element else { return false };
    key.extend([1 + dtype as u8, view.ndim as u8, (view.address % ALIGN) as u8]);
    key.extend(view.device.kind.to_le_bytes());
    key.extend(view.device.index.to_le_bytes());
    for (size, stride) in view.shape.iter().zip(&view.strides).take(view.ndim) {
        key.extend(size.to_le_bytes());
        key.extend(stride.to_le_bytes());
    }
    true
}
