//! Where the blocks of a sparse matrix lie: index tensors come in; checked 32-bit copies go out, and are kept for as long
//! as the tensors do not change.
//!
//! The copies are ours, so whatever becomes of the tensors afterwards, no kernel reads past its buffers. Those of a matrix
//! on a GPU lie there too.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use warplap::core::array::Array;
use warplap::cuda::{Buffer, Stream};
use warplap::ops::bsr::{BsrProblem, validate};
use warplap::{DType, Layout};

use crate::capsule::capsule;
use crate::dlpack::{self, DlDevice};
use crate::lent;
use crate::state::state;
use crate::tensor::{Element, View};
use crate::torch::Torch;

/// Indices in device memory.
pub(crate) struct OnGpu {
    pub(crate) ordinal: usize,
    pub(crate) row_ptr: Buffer,
    pub(crate) col_idx: Buffer,
    lengths: [usize; 2],
    tensors: PyOnceLock<[Py<PyAny>; 2]>,
    // Whether a captured graph knows their addresses.
    captured: AtomicBool,
}

/// Indices that captured graphs know the addresses of: a graph may be replayed at any time, so they stay for good.
static CAPTURED: Mutex<Vec<Arc<Structure>>> = Mutex::new(Vec::new());

impl OnGpu {
    fn new(structure: &Structure, ordinal: usize, queue: &Stream) -> PyResult<Self> {
        let upload = |indices: &[i32]| {
            let indices = Array::I32(if indices.is_empty() { vec![0] } else { indices.to_vec() });
            queue.upload(&indices).map_err(|e| PyRuntimeError::new_err(e.to_string()))
        };
        let (row_ptr, col_idx) = (upload(&structure.row_ptr)?, upload(&structure.col_idx)?);
        let lengths = [structure.row_ptr.len(), structure.col_idx.len()];
        let (tensors, captured) = (PyOnceLock::new(), AtomicBool::new(false));
        Ok(OnGpu { ordinal, row_ptr, col_idx, lengths, tensors, captured })
    }

    /// The indices as tensors of torch.
    pub(crate) fn tensors<'p>(&'p self, py: Python<'p>) -> PyResult<&'p [Py<PyAny>; 2]> {
        self.tensors.get_or_try_init(py, || {
            let torch = Torch::here(py).ok_or_else(|| PyRuntimeError::new_err("torch is not there"))?;
            let place = DlDevice { kind: dlpack::CUDA, index: self.ordinal as i32 };
            let tensor = |buffer: &Buffer, len: usize| {
                let (address, shape) = (buffer.address() as usize, vec![len as i64]);
                let lent = lent::Buffer { address, dtype: DType::I32, shape, strides: vec![1] };
                torch.tensor(capsule(py, &lent, place)?).map(Bound::unbind)
            };
            Ok([tensor(&self.row_ptr, self.lengths[0])?, tensor(&self.col_idx, self.lengths[1])?])
        })
    }
}

/// Checked indices.
pub(crate) struct Structure {
    pub(crate) row_ptr: Vec<i32>,
    pub(crate) col_idx: Vec<i32>,
    pub(crate) problem: BsrProblem,
    /// The copies on the GPU the tensors are on, if they are on one.
    pub(crate) on_gpu: Option<OnGpu>,
    // The tensors they were read from: their memory is not given to others while the copies are kept by its address.
    seen: Option<Seen>,
}

/// Two index tensors and how often each was changed.
type Seen = (Py<PyAny>, Py<PyAny>, [u64; 2]);

/// Shape of the matrix and size of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Frame {
    pub(crate) m: u64,
    pub(crate) k: u64,
    pub(crate) bs: u64,
    pub(crate) bc: u64,
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
        let unchanged = |(_, _, then): &Seen| Some(*then) == versions;
        if let Some(found) = found.filter(|f| f.seen.as_ref().is_some_and(unchanged)) {
            return Ok(found);
        }
        let seen = versions.map(|v| (row_ptr.clone().unbind(), col_idx.clone().unbind(), v));
        let made = match rows.cuda() {
            None => Structure::read(&rows, &columns, frame, seen)?,
            Some(ordinal) => Structure::fetch(row_ptr, col_idx, ordinal, frame, seen)?,
        };
        let made = Arc::new(made);
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

    /// Reads indices back from a GPU, once for a matrix.
    fn fetch(
        rows: &Bound<'_, PyAny>,
        columns: &Bound<'_, PyAny>,
        ordinal: usize,
        frame: Frame,
        seen: Option<Seen>,
    ) -> PyResult<Structure> {
        let py = rows.py();
        let state = state();
        let queue = state.gpu(ordinal)?.queue(py);
        if queue.is_capturing().unwrap_or(true) {
            return Err(PyNotImplementedError::new_err(
                "a: its indices are new and the stream is being captured; multiply with it once before the capture",
            ));
        }
        let (rows, columns) = (rows.call_method0("cpu")?, columns.call_method0("cpu")?);
        let views = (View::of(&rows, "crow_indices")?, View::of(&columns, "col_indices")?);
        let mut structure = Structure::read(&views.0, &views.1, frame, seen)?;
        structure.on_gpu = Some(OnGpu::new(&structure, ordinal, &queue)?);
        Ok(structure)
    }

    /// Keeps the indices for good where the stream is being captured.
    #[inline]
    pub(crate) fn launched(self: &Arc<Self>, on: &OnGpu, queue: &Stream) {
        if on.captured.load(Ordering::Relaxed) || !queue.is_capturing().unwrap_or(false) {
            return;
        }
        if !on.captured.swap(true, Ordering::Relaxed) {
            CAPTURED.lock().unwrap_or_else(PoisonError::into_inner).push(self.clone());
        }
    }

    fn read(rows: &View, columns: &View, frame: Frame, seen: Option<Seen>) -> PyResult<Structure> {
        let (row_ptr, col_idx) = (indices(rows, "crow_indices")?, indices(columns, "col_indices")?);
        let Frame { m, k, bs, bc } = frame;
        let bad = |e: &dyn std::fmt::Display| PyValueError::new_err(format!("a: {e}"));
        let problem =
            BsrProblem::of_blocks((m, k, 1), (bs, bc), DType::F32, Layout::Row, &row_ptr).map_err(|e| bad(&e))?;
        validate(&row_ptr, &col_idx, problem.values_len(), &problem).map_err(|e| bad(&e))?;
        Ok(Structure { row_ptr, col_idx, problem, on_gpu: None, seen })
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
