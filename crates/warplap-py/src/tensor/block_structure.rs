//! Where the blocks of a sparse matrix lie: index tensors come in; checked 32-bit copies go out, and are kept for as
//! long as the tensors do not change.
//!
//! The copies are ours, so whatever becomes of the tensors afterwards, no kernel reads past its buffers. Those of a
//! matrix on a GPU lie there too.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pyo3::exceptions::{PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use warplap::core::array::Array;
use warplap::cuda::{Buffer, Stream};
use warplap::ops::bsr::{BsrProblem, turned_index, validate};
use warplap::{DType, Layout};

use crate::call::state::state;
use crate::call::torch::Torch;
use crate::tensor::argument::{self, CallArgument};
use crate::tensor::capsule;
use crate::tensor::dlpack::{self, DlDevice};
use crate::tensor::view::{Element, View};

/// Indices in device memory.
struct OnGpu {
    // They own what the views show.
    _buffers: Vec<Buffer>,
    tensors: PyOnceLock<[Py<PyAny>; 2]>,
    // Whether a captured graph knows their addresses.
    captured: AtomicBool,
}

/// Indices that captured graphs know the addresses of: a graph may be replayed at any time, so they stay for good.
static CAPTURED: Mutex<Vec<Arc<Structure>>> = Mutex::new(Vec::new());

/// Checked indices.
pub(crate) struct Structure {
    row_ptr: Vec<i32>,
    col_idx: Vec<i32>,
    // Where each block is stored, for the transpose of a matrix.
    place: Vec<i32>,
    pub(crate) problem: BsrProblem,
    /// The copies that kernels read, where the tensors are: row pointers, columns and, of a transpose, places.
    views: [View; 3],
    on_gpu: Option<OnGpu>,
    // The same matrix transposed, once somebody wants it.
    turned: OnceLock<Arc<Structure>>,
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
        let answer = kept().get_or_insert_default().get(&name).cloned();
        let unchanged = |(_, _, then): &Seen| Some(*then) == versions;
        if let Some(answer) = answer.filter(|f| f.seen.as_ref().is_some_and(unchanged)) {
            return Ok(answer);
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
        Structure::read(&views.0, &views.1, frame, seen)?.upload(&queue, ordinal)
    }

    /// The same with its copies on a GPU.
    fn upload(mut self, queue: &Stream, ordinal: usize) -> PyResult<Structure> {
        let upload = |indices: &Vec<i32>| {
            let indices = Array::I32(if indices.is_empty() { vec![0] } else { indices.clone() });
            queue.upload(&indices).map_err(|e| PyRuntimeError::new_err(e.to_string()))
        };
        let indices = [&self.row_ptr, &self.col_idx, &self.place];
        let buffers = indices.into_iter().map(upload).collect::<PyResult<Vec<Buffer>>>()?;
        let device = DlDevice { kind: dlpack::CUDA, index: ordinal as i32 };
        self.views = std::array::from_fn(|i| View::of_indices(buffers[i].address() as usize, indices[i].len(), device));
        let (tensors, captured) = (PyOnceLock::new(), AtomicBool::new(false));
        self.on_gpu = Some(OnGpu { _buffers: buffers, tensors, captured });
        Ok(self)
    }

    /// The transposed matrix over the same blocks: made once.
    pub(crate) fn turned(&self, py: Python<'_>) -> PyResult<Arc<Structure>> {
        if let Some(made) = self.turned.get() {
            return Ok(made.clone());
        }
        let index = turned_index(&self.row_ptr, &self.col_idx, self.problem.columns());
        let BsrProblem { m, k, bs, bc, .. } = self.problem;
        let problem = BsrProblem::of_blocks((k, m, 1), (bc, bs), DType::F32, Layout::Row, &index.row_ptr)
            .map_err(|e| PyValueError::new_err(format!("a: {e}")))?;
        let problem = BsrProblem { turned: true, ..problem };
        let mut made = Structure::on_host(index.row_ptr, index.col_idx, index.place, problem, None);
        if self.on_gpu.is_some() {
            let ordinal = self.views[0].device.index as usize;
            let queue = state().gpu(ordinal)?.queue(py);
            if queue.is_capturing().unwrap_or(true) {
                return Err(PyNotImplementedError::new_err(
                    "a: its transpose is new and the stream is being captured; run backward once before the capture",
                ));
            }
            made = made.upload(&queue, ordinal)?;
        }
        Ok(self.turned.get_or_init(|| Arc::new(made)).clone())
    }

    fn on_host(
        row_ptr: Vec<i32>,
        col_idx: Vec<i32>,
        place: Vec<i32>,
        problem: BsrProblem,
        seen: Option<Seen>,
    ) -> Structure {
        let host = DlDevice { kind: dlpack::CPU, index: 0 };
        let views = [&row_ptr, &col_idx, &place].map(|v| View::of_indices(v.as_ptr() as usize, v.len(), host));
        Structure { row_ptr, col_idx, place, problem, views, on_gpu: None, turned: OnceLock::new(), seen }
    }

    /// The indices as a call's first two slots.
    #[inline]
    pub(crate) fn call_arguments(&self) -> [CallArgument<'_>; 2] {
        let [rows, columns, _] = &self.views;
        [CallArgument::read("a", rows), CallArgument::read("a", columns)]
    }

    /// Where blocks are stored, where that is not one after the other.
    #[inline]
    pub(crate) fn place(&self) -> CallArgument<'_> {
        if self.problem.turned { CallArgument::read("a", &self.views[2]) } else { CallArgument::NONE }
    }

    /// The indices as tensors of torch: the caller's own, but on a GPU the checked ones: they have the type that
    /// callables were raced with.
    pub(crate) fn tensors<'py>(
        &self,
        rows: &Bound<'py, PyAny>,
        columns: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<[Option<Bound<'py, PyAny>>; 2]> {
        let py = rows.py();
        let Some(on) = &self.on_gpu else { return Ok([Some(rows.clone()), columns.cloned()]) };
        let made = on.tensors.get_or_try_init(py, || {
            let torch = Torch::here(py).ok_or_else(|| PyRuntimeError::new_err("torch is not there"))?;
            let tensor = |view: &View| {
                let (shape, strides) = (view.sizes().to_vec(), vec![1]);
                let kernel_arguments = capsule::Buffer { address: view.address, dtype: DType::I32, shape, strides };
                torch.tensor(capsule::capsule(py, &kernel_arguments, view.device)?).map(Bound::unbind)
            };
            PyResult::Ok([tensor(&self.views[0])?, tensor(&self.views[1])?])
        })?;
        Ok(std::array::from_fn(|i| Some(made[i].bind(py).clone())))
    }

    /// Keeps the indices for good where the stream is being captured.
    #[inline]
    pub(crate) fn launched(self: &Arc<Self>, queue: &Stream) {
        let Some(on) = &self.on_gpu else { return };
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
        Ok(Structure::on_host(row_ptr, col_idx, Vec::new(), problem, seen))
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
                _ => Err(argument::unaligned(name, 4)),
            }
        }
        Element::Float(DType::I64) => {
            if len == 0 {
                return Ok(Vec::new());
            }
            if !view.address.is_multiple_of(8) {
                return Err(argument::unaligned(name, 8));
            }
            // SAFETY: as above, of 64-bit integers.
            let wide = unsafe { std::slice::from_raw_parts(view.address as *const i64, len) };
            let narrow = |v: &i64| i32::try_from(*v).map_err(|_| PyValueError::new_err(format!("{name}: holds {v}")));
            wide.iter().map(narrow).collect()
        }
        other => Err(PyTypeError::new_err(format!("{name}: holds {}, expected int32 or int64", other.name()))),
    }
}
