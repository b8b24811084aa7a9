//! Where the blocks of a sparse matrix lie: index tensors come in; checked 32-bit copies go out, and are kept for as long
//! as the tensors do not change.
//!
//! The copies are ours, so whatever becomes of the tensors afterwards, no kernel reads past its buffers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use warplap::ops::bsr::{BsrProblem, validate};
use warplap::{DType, Layout};

use crate::tensor::{Element, View};

/// Checked indices.
pub(crate) struct Structure {
    pub(crate) row_ptr: Vec<i32>,
    pub(crate) col_idx: Vec<i32>,
    pub(crate) problem: BsrProblem,
    // The tensors they were read from: their memory is not given to others while the copies are kept by its address.
    seen: Option<(Py<PyAny>, Py<PyAny>, [u64; 2])>,
}

/// Shape of the matrix and size of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Frame {
    pub(crate) m: u64,
    pub(crate) k: u64,
    pub(crate) bs: u64,
}

type Kept = HashMap<(usize, usize, usize, Frame), Arc<Structure>>;

static KEPT: Mutex<Option<Kept>> = Mutex::new(None);

fn kept() -> std::sync::MutexGuard<'static, Option<Kept>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Matrices whose indices are kept; then all are forgotten and read again.
const KEEP: usize = 256;

/// How often a tensor was changed; `None` where nobody counts.
pub(crate) fn version(object: &Bound<'_, PyAny>) -> Option<u64> {
    object.getattr(intern!(object.py(), "_version")).ok()?.extract().ok()
}

impl Structure {
    /// The indices of a matrix, read from tensors or arrays of 32- or 64-bit integers.
    pub(crate) fn of(row_ptr: &Bound<'_, PyAny>, col_idx: &Bound<'_, PyAny>, frame: Frame) -> PyResult<Arc<Structure>> {
        let (rows, columns) = (View::of(row_ptr, "crow_indices")?, View::of(col_idx, "col_indices")?);
        let versions = version(row_ptr).zip(version(col_idx)).map(|(a, b)| [a, b]);
        let name = (rows.address, columns.address, columns.shape[0] as usize, frame);
        let found = kept().get_or_insert_default().get(&name).cloned();
        let unchanged = |(_, _, then): &(_, _, [u64; 2])| Some(*then) == versions;
        if let Some(found) = found.filter(|f| f.seen.as_ref().is_some_and(unchanged)) {
            return Ok(found);
        }
        let seen = versions.map(|v| (row_ptr.clone().unbind(), col_idx.clone().unbind(), v));
        let made = Arc::new(Structure::read(&rows, &columns, frame, seen)?);
        if made.seen.is_some() {
            let mut held = kept();
            let all = held.get_or_insert_default();
            let left = if all.len() >= KEEP { std::mem::take(all) } else { Kept::default() };
            let former = all.insert(name, made.clone());
            // What leaves is let go after the lock: the end of a tensor may run a program's own code.
            drop(held);
            drop((left, former));
        }
        Ok(made)
    }

    fn read(
        rows: &View,
        columns: &View,
        frame: Frame,
        seen: Option<(Py<PyAny>, Py<PyAny>, [u64; 2])>,
    ) -> PyResult<Structure> {
        let (row_ptr, col_idx) = (indices(rows, "crow_indices")?, indices(columns, "col_indices")?);
        let Frame { m, k, bs } = frame;
        let bad = |e: &dyn std::fmt::Display| PyValueError::new_err(format!("a: {e}"));
        let problem = BsrProblem::of((m, k, 1), bs, DType::F32, Layout::Row, &row_ptr).map_err(|e| bad(&e))?;
        validate(&row_ptr, &col_idx, problem.values_len(), &problem).map_err(|e| bad(&e))?;
        Ok(Structure { row_ptr, col_idx, problem, seen })
    }
}

fn indices(view: &View, name: &str) -> PyResult<Vec<i32>> {
    if view.ndim != 1 || !view.is_compact() || !view.on_host() {
        let what = format!("{name}: has {} dimensions, expected one, contiguous, on the host", view.ndim);
        return Err(PyValueError::new_err(what));
    }
    let len = view.shape[0] as usize;
    match view.element {
        Element::Float(DType::I32) => {
            // SAFETY: the caller holds the object; it is compact and spans its length.
            match unsafe { view.slice(len) } {
                Some(warplap::cpu::Slice::I32(v)) => Ok(v.to_vec()),
                _ => Err(crate::argument::unaligned(name)),
            }
        }
        Element::I64 => {
            if len == 0 {
                return Ok(Vec::new());
            }
            if !view.address.is_multiple_of(8) {
                return Err(crate::argument::unaligned(name));
            }
            // SAFETY: as above, of 64-bit integers.
            let wide = unsafe { std::slice::from_raw_parts(view.address as *const i64, len) };
            let narrow = |v: &i64| i32::try_from(*v).map_err(|_| PyValueError::new_err(format!("{name}: holds {v}")));
            wide.iter().map(narrow).collect()
        }
        other => Err(PyTypeError::new_err(format!("{name}: holds {}, expected int32 or int64", other.name()))),
    }
}
