//! What Python keeps for calls it has seen: by how the tensors of a call lie and by its other arguments. To ask every
//! tensor for its shape, strides and address takes Python longer than a kernel.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::call::torch::Torch;
use crate::tensor::view::{Element, View};

/// Alignments beyond this are all alike.
const ALIGN: usize = 64;

/// Calls that are kept at the most: sizes may change all the time.
const MOST: usize = 4096;

/// Which calls are kept; for all others nothing is known.
#[derive(Clone, Copy, PartialEq)]
enum KeptCalls {
    /// Nobody wants a gradient, nobody watches or casts: what goes straight to a kernel.
    Direct,
    /// Somebody wants a gradient; of whom is part of the key.
    Training,
    /// All over plain tensors.
    All,
}

/// Values by calls. Tensors that are None stand for ones that are not there.
#[pyclass(frozen, module = "warplap._warplap")]
pub(crate) struct CallCache {
    calls: KeptCalls,
    known: Py<PyDict>,
}

#[pymethods]
impl CallCache {
    #[new]
    fn new(py: Python<'_>, calls: &str) -> PyResult<Self> {
        let calls = match calls {
            "direct" => KeptCalls::Direct,
            "training" => KeptCalls::Training,
            "all" => KeptCalls::All,
            _ => return Err(PyValueError::new_err("calls: expected direct, training or all")),
        };
        Ok(CallCache { calls, known: PyDict::new(py).unbind() })
    }

    /// What is kept for such a call; None where nothing is, or where such calls are not kept.
    fn get<'py>(
        &self,
        tensors: &Bound<'py, PyTuple>,
        facts: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = tensors.py();
        match self.key(tensors, facts)? {
            Some(key) => self.known.bind(py).get_item(key),
            None => Ok(None),
        }
    }

    /// Keeps a value for all calls like this one; whether such calls are kept.
    fn keep(&self, tensors: &Bound<'_, PyTuple>, facts: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Some(key) = self.key(tensors, facts)? else { return Ok(false) };
        let known = self.known.bind(tensors.py());
        if known.len() >= MOST {
            known.clear();
        }
        known.set_item(key, value)?;
        Ok(true)
    }

    /// Whether such calls are kept.
    fn keeps(&self, tensors: &Bound<'_, PyTuple>) -> PyResult<bool> {
        Ok(self.layout(tensors)?.is_some())
    }

    fn clear(&self, py: Python<'_>) {
        self.known.bind(py).clear();
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.known.bind(py).len()
    }
}

impl CallCache {
    fn key<'py>(
        &self,
        tensors: &Bound<'py, PyTuple>,
        facts: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let py = tensors.py();
        let Some(layout) = self.layout(tensors)? else { return Ok(None) };
        Ok(Some((PyBytes::new(py, &layout), facts).into_pyobject(py)?))
    }

    /// Types, shapes, strides and alignments, and which of them want a gradient where that is asked.
    fn layout(&self, tensors: &Bound<'_, PyTuple>) -> PyResult<Option<Vec<u8>>> {
        let py = tensors.py();
        let Some(torch) = Torch::here(py) else { return Ok(None) };
        let mut key = Vec::with_capacity(48 * tensors.len());
        let mut wants = false;
        for tensor in tensors.iter_borrowed() {
            if tensor.is_none() {
                key.push(0);
                continue;
            }
            if !torch.is_plain(&tensor) {
                return Ok(None);
            }
            let wanted = self.calls != KeptCalls::All && torch.wants_gradient(&tensor)?;
            wants |= wanted;
            key.push(1 + u8::from(wanted && self.calls == KeptCalls::Training));
            // What has no memory that can be named takes the general way, which says why.
            let Ok(view) = torch.view(&tensor, "") else { return Ok(None) };
            if !append(&view, &mut key) {
                return Ok(None);
            }
        }
        let are_kept = match self.calls {
            KeptCalls::Direct => !(wants && torch.keeps_gradients(py)? || torch.is_watched(py)?),
            KeptCalls::Training => wants && torch.keeps_gradients(py)?,
            KeptCalls::All => true,
        };
        Ok(are_kept.then_some(key))
    }
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
