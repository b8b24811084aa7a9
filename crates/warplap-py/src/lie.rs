//! How tensors lie: torch's tensors of a call come in, bytes go out that are equal where the same prepared call will do.
//! Python keeps its calls by them: to ask every tensor for its shape, strides and address takes it longer than a kernel.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::tensor::{Element, View};
use crate::torch::Torch;

/// Alignments beyond this are all alike.
const ALIGN: usize = 64;

/// Types, shapes, strides and alignments of plain tensors (None stands for one that is not given). None where a call over
/// them cannot go straight to its kernel: a gradient is wanted, somebody watches or casts, or one has a mind of its own.
#[pyfunction]
#[pyo3(signature = (*tensors))]
pub(crate) fn lie<'py>(tensors: &Bound<'py, PyTuple>) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let py = tensors.py();
    let Some(torch) = Torch::here(py) else { return Ok(None) };
    let given: Vec<Bound<'py, PyAny>> = tensors.iter().filter(|tensor| !tensor.is_none()).collect();
    if !torch.is_direct(py, &given.iter().collect::<Vec<_>>())? {
        return Ok(None);
    }
    let mut told = Vec::with_capacity(48 * tensors.len());
    for tensor in tensors.iter() {
        if tensor.is_none() {
            told.push(0);
            continue;
        }
        // What has no memory that can be named takes the general way, which says why.
        let Ok(view) = torch.view(&tensor, "") else { return Ok(None) };
        if !tell(&view, &mut told) {
            return Ok(None);
        }
    }
    Ok(Some(PyBytes::new(py, &told)))
}

fn tell(view: &View, told: &mut Vec<u8>) -> bool {
    let Element::Float(dtype) = view.element else { return false };
    told.extend([1 + dtype as u8, view.ndim as u8, (view.address % ALIGN) as u8]);
    told.extend(view.device.kind.to_le_bytes());
    told.extend(view.device.index.to_le_bytes());
    for (size, stride) in view.shape.iter().zip(&view.strides).take(view.ndim) {
        told.extend(size.to_le_bytes());
        told.extend(stride.to_le_bytes());
    }
    true
}
