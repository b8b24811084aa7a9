//! Ways of torch on a GPU: what was chosen for a call's shapes is called again without asking anyone.
//!
//! A call's tensors come in; the callable that was chosen for tensors like these goes out.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

use crate::dlpack::DlDevice;
use crate::tensor::{Element, View};

/// What tells calls of attention apart.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    mode: u8,
    device: (i32, i32),
    element: u32,
    sizes: [[i64; 8]; 3],
    causal: bool,
    scale: Option<u64>,
}

impl Call {
    /// The call these tensors are, if they are four-dimensional floats in one place.
    pub(crate) fn of(mode: u8, tensors: [&View; 3], causal: bool, scale: Option<f64>) -> Option<Call> {
        let first = tensors[0];
        let Element::Float(dtype) = first.element else { return None };
        let mut sizes = [[0; 8]; 3];
        for (to, view) in sizes.iter_mut().zip(tensors) {
            if view.ndim != 4 || view.element != first.element || view.device != first.device {
                return None;
            }
            to[..4].copy_from_slice(&view.shape[..4]);
            to[4..].copy_from_slice(&view.strides[..4]);
        }
        let DlDevice { kind, index } = first.device;
        let scale = scale.map(f64::to_bits);
        Some(Call { mode, device: (kind, index), element: dtype as u32, sizes, causal, scale })
    }
}

/// The callables of choice by call.
#[derive(Default)]
pub(crate) struct Ways(Mutex<HashMap<Call, Py<PyAny>>>);

/// Calls that are remembered; then all are forgotten and asked for again.
const KEEP: usize = 4096;

impl Ways {
    pub(crate) fn find(&self, py: Python<'_>, call: &Call) -> Option<Py<PyAny>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(call).map(|way| way.clone_ref(py))
    }

    pub(crate) fn put(&self, call: Call, way: Py<PyAny>) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = if held.len() >= KEEP { std::mem::take(&mut *held) } else { HashMap::default() };
        let former = held.insert(call, way);
        // Let go after the lock: the end of an object may run a program's own code.
        drop(held);
        drop((left, former));
    }
}
