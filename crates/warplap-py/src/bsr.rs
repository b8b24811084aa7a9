//! `bsr_matmul`: a block-sparse and a dense matrix come in, their product goes out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyNotImplementedError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyWeakrefMethods, PyWeakrefReference};
use warplap::core::op::Op;
use warplap::ops::bsr::BsrArgs;
use warplap::{Bsr, BsrProblem, Cpu, Layout};

use crate::argument;
use crate::failure::rejected;
use crate::foreign::Described;
use crate::gpu::{self, BsrAddresses};
use crate::lent::{Buffer, Lent};
use crate::state::state;
use crate::structure::{Frame, Structure, version};
use crate::tensor::View;
use crate::torch::Torch;

/// A product and its memory.
struct Product {
    problem: BsrProblem,
    structure: Arc<Structure>,
    values: View,
    b: View,
}

impl Product {
    #[inline]
    fn of(structure: Arc<Structure>, values: View, b: View) -> PyResult<Product> {
        let mut p = structure.problem;
        p.dtype = argument::float(&values, "a")?;
        match &structure.on_gpu {
            None => argument::on_host(&values, "a")?,
            Some(on) if values.cuda() == Some(on.ordinal) => {}
            Some(on) => {
                let (found, expected) = (values.place(), on.ordinal);
                return Err(PyValueError::new_err(format!(
                    "a.values(): is on {found}, its indices on cuda:{expected}"
                )));
            }
        }
        argument::shape(&values, "a.values()", &[p.nnz as i64, p.bs as i64, p.bc as i64])?;
        if !values.is_compact() {
            return Err(argument::strided(&values, "a.values()", "contiguous row-major blocks"));
        }
        argument::same(&b, "b", p.dtype, "a")?;
        argument::together(&b, "b", &values)?;
        argument::dims(&b, "b", 2)?;
        p.n = b.shape[1] as u64;
        argument::shape(&b, "b", &[p.k as i64, p.n as i64])?;
        argument::sizes(&b, "b")?;
        p.b = argument::order(&b, "b")?;
        Ok(Product { problem: p, structure, values, b })
    }

    /// Checks what is to be written, and takes its order into the problem.
    #[inline]
    fn check(&mut self, out: &View) -> PyResult<()> {
        let p = &mut self.problem;
        argument::same(out, "out", p.dtype, "a")?;
        argument::together(out, "out", &self.b)?;
        argument::shape(out, "out", &[p.m as i64, p.n as i64])?;
        p.c = argument::order(out, "out")?;
        let p = &self.problem;
        if self.structure.on_gpu.is_some() && !(self.values.address | self.b.address | out.address).is_multiple_of(16) {
            return Err(PyValueError::new_err("a, b or out: is not on a multiple of 16 bytes; call .clone()"));
        }
        let inputs = [("a", &self.values, p.values_len()), ("b", &self.b, (p.k * p.n) as usize)];
        argument::output(out, (p.m * p.n) as usize, &inputs)
    }

    /// Runs it; `objects` are the caller's own tensors, where they are torch's.
    #[inline]
    fn run(&self, py: Python<'_>, out: &View, objects: Option<&Objects<'_, '_>>) -> PyResult<()> {
        let (p, state) = (&self.problem, state());
        if let Some(on) = &self.structure.on_gpu {
            let desks = state.gpu(on.ordinal)?;
            let queue = desks.queue(py);
            self.structure.launched(on, &queue);
            let (row_ptr, col_idx) = (on.row_ptr.address(), on.col_idx.address());
            let at =
                BsrAddresses { row_ptr, col_idx, values: self.values.address, b: self.b.address, out: out.address };
            // A callable gets the checked indices: they have the type it was raced with.
            let arguments = objects.map(|o| {
                move || -> PyResult<_> {
                    let [rows, columns] = on.tensors(py)?;
                    (rows, columns, o.values, p.m, p.k, o.b, o.out).into_pyobject(py)
                }
            });
            return gpu::bsr(py, desks, &queue, p, &at, arguments);
        }
        state.desks().bsr.with(py, p, &(), |entry| {
            if let (Some(foreign), Some(o)) = (&entry.foreign, objects) {
                return foreign.call(&(o.crow, o.col, o.values, p.m, p.k, o.b, o.out).into_pyobject(py)?);
            }
            let (b_len, c_len) = ((p.k * p.n) as usize, (p.m * p.n) as usize);
            // SAFETY: the caller holds references to the objects behind the views for the time of this call, all were
            // found compact, and `output` has seen to it that out shares nothing with them.
            let slices = unsafe { (self.values.slice(p.values_len()), self.b.slice(b_len), out.slice_mut(c_len)) };
            let (Some(values), Some(b), Some(c)) = slices else { return Err(argument::unaligned("a, b or out")) };
            let (row_ptr, col_idx) = (&self.structure.row_ptr[..], &self.structure.col_idx[..]);
            let (row_ptr, col_idx) = (row_ptr.into(), col_idx.into());
            let args = BsrArgs::<Cpu> { problem: p, row_ptr, col_idx, values, b, c, add: None, place: None };
            let kernel = &*entry.kernel;
            let done = if entry.brief { kernel.launch(args, &()) } else { py.detach(|| kernel.launch(args, &())) };
            done.map_err(|e| rejected(&e))
        })
    }
}

/// The caller's own tensors; where `col` is nothing, `crow` is the sparse tensor itself.
struct Objects<'a, 'py> {
    crow: &'a Bound<'py, PyAny>,
    col: Option<&'a Bound<'py, PyAny>>,
    values: &'a Bound<'py, PyAny>,
    b: &'a Bound<'py, PyAny>,
    out: &'a Bound<'py, PyAny>,
}

/// What is kept of a sparse tensor: who it was, how often it was changed, where its values were.
struct Seen {
    who: Py<PyWeakrefReference>,
    version: u64,
    values: usize,
    structure: Arc<Structure>,
}

static SEEN: Mutex<Option<HashMap<usize, Seen>>> = Mutex::new(None);
const KEEP: usize = 256;

fn seen() -> std::sync::MutexGuard<'static, Option<HashMap<usize, Seen>>> {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The structure and the values of a block-sparse tensor of torch. Reading the index tensors out of it takes longer than
/// all the rest of a call, so they are read again only when it is another tensor, was changed, or holds other values.
fn parts<'py>(a: &Bound<'py, PyAny>) -> PyResult<(Arc<Structure>, Bound<'py, PyAny>, View)> {
    let py = a.py();
    let torch = Torch::here(py).ok_or_else(|| PyValueError::new_err("a: torch is not there"))?;
    let values = a.call_method0(intern!(py, "values"))?;
    let view = torch.view(&values, "a.values()")?;
    let now = version(a);
    if let Some(found) = seen().get_or_insert_default().get(&(a.as_ptr() as usize)) {
        let same = found.who.bind(py).upgrade().is_some_and(|who| who.is(a));
        if same && now == Some(found.version) && found.values == view.address {
            return Ok((found.structure.clone(), values, view));
        }
    }
    let shape: Vec<u64> = a.getattr("shape")?.extract()?;
    let blocks = &view.shape[..view.ndim];
    let (&[m, k], &[_, bs, bc]) = (&shape[..], blocks) else {
        let what = format!("a: has shape {shape:?} and blocks {blocks:?}, expected one matrix of blocks");
        return Err(PyValueError::new_err(what));
    };
    let (rows, columns) = (a.call_method0("crow_indices")?, a.call_method0("col_indices")?);
    let structure = Structure::of(&rows, &columns, Frame { m, k, bs: bs as u64, bc: bc as u64 })?;
    if let Some(version) = now {
        let (who, structure) = (PyWeakrefReference::new(a)?.unbind(), structure.clone());
        let mut held = seen();
        let all = held.get_or_insert_default();
        let left = if all.len() >= KEEP { std::mem::take(all) } else { HashMap::default() };
        let former = all.insert(a.as_ptr() as usize, Seen { who, version, values: view.address, structure });
        // What leaves is let go after the lock: the end of an object may run a program's own code.
        drop(held);
        drop((left, former));
    }
    Ok((structure, values, view))
}

/// The product of two tensors of torch, computed at once: `None` where that is not for this path to do.
#[pyfunction]
#[pyo3(signature = (a, b, out=None))]
pub(crate) fn bsr_direct<'py>(
    a: &Bound<'py, PyAny>,
    b: &Bound<'py, PyAny>,
    out: Option<Bound<'py, PyAny>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = a.py();
    let Some(torch) = Torch::here(py) else { return Ok(None) };
    let direct = match &out {
        Some(out) => torch.is_direct(py, &[a, b, out])?,
        None => torch.is_direct(py, &[a, b])?,
    };
    if !direct || !torch.is_bsr(a)? {
        return Ok(None);
    }
    let (Ok((structure, values, view)), Ok(dense)) = (parts(a), torch.view(b, "b")) else { return Ok(None) };
    let Ok(mut product) = Product::of(structure, view, dense) else { return Ok(None) };
    let out = match out {
        Some(out) => out,
        None => torch.empty(b, &[product.problem.m as i64, product.problem.n as i64])?,
    };
    let Ok(view) = torch.view(&out, "out") else { return Ok(None) };
    if product.check(&view).is_err() {
        return Ok(None);
    }
    let objects = Objects { crow: a, col: None, values: &values, b, out: &out };
    match product.run(py, &view, Some(&objects)) {
        // A device that cannot be used: the general way has torch to fall back on.
        Err(error) if error.is_instance_of::<PyNotImplementedError>(py) => Ok(None),
        outcome => outcome.map(|()| Some(out)),
    }
}

/// Whether a kernel was chosen already for a product: everything a call does before it launches.
#[pyfunction]
pub(crate) fn bsr_known(a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>, out: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = a.py();
    let Some(torch) = Torch::here(py) else { return Ok(false) };
    if !torch.is_direct(py, &[a, b, out])? || !torch.is_bsr(a)? {
        return Ok(false);
    }
    let (structure, _values, view) = parts(a)?;
    let mut product = Product::of(structure, view, torch.view(b, "b")?)?;
    product.check(&torch.view(out, "out")?)?;
    let state = state();
    let Some(on) = &product.structure.on_gpu else { return Ok(state.desks().bsr.knows(&product.problem)) };
    let desks = state.gpu(on.ordinal)?;
    product.structure.launched(on, &desks.queue(py));
    Ok(desks.bsr.knows(&product.problem))
}

fn product(
    (crow, col, values): (&Bound<'_, PyAny>, &Bound<'_, PyAny>, &Bound<'_, PyAny>),
    (m, k): (u64, u64),
    b: &Bound<'_, PyAny>,
) -> PyResult<Product> {
    let view = View::of(values, "a.values()")?;
    argument::dims(&view, "a.values()", 3)?;
    let (bs, bc) = (view.shape[1].max(0) as u64, view.shape[2].max(0) as u64);
    let structure = Structure::of(crow, col, Frame { m, k, bs, bc })?;
    Product::of(structure, view, View::of(b, "b")?)
}

/// Writes the product of a block-sparse matrix, given by its parts, and a dense one into a third.
#[pyfunction]
#[pyo3(signature = (crow, col, values, m, k, b, out))]
pub(crate) fn bsr_into(
    crow: &Bound<'_, PyAny>,
    col: &Bound<'_, PyAny>,
    values: &Bound<'_, PyAny>,
    m: u64,
    k: u64,
    b: &Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let py = crow.py();
    let mut product = product((crow, col, values), (m, k), b)?;
    let view = View::of(out, "out")?;
    product.check(&view)?;
    let torch = Torch::here(py).filter(|t| [crow, col, values, b, out].iter().all(|o| t.is_tensor(o)));
    let objects = Objects { crow, col: Some(col), values, b, out };
    product.run(py, &view, torch.map(|_| &objects))
}

/// The problem of a product, in its text form.
#[pyfunction]
pub(crate) fn bsr_problem(
    crow: &Bound<'_, PyAny>,
    col: &Bound<'_, PyAny>,
    values: &Bound<'_, PyAny>,
    m: u64,
    k: u64,
    b: &Bound<'_, PyAny>,
) -> PyResult<String> {
    Ok(Bsr::text(&product((crow, col, values), (m, k), b)?.problem))
}

impl Described for Bsr {
    fn buffers<D: Lent>(mut args: BsrArgs<'_, D>) -> Vec<Buffer> {
        let p = args.problem;
        let b = if p.b == Layout::Row { [p.n, 1] } else { [1, p.k] };
        let c = if p.c == Layout::Row { [p.n, 1] } else { [1, p.m] };
        vec![
            Buffer::read::<D>(&args.row_ptr, &[p.m / p.bs + 1], &[1]),
            Buffer::read::<D>(&args.col_idx, &[p.nnz], &[1]),
            Buffer::read::<D>(&args.values, &[p.nnz, p.bs, p.bc], &[p.bs * p.bc, p.bc, 1]),
            Buffer::read::<D>(&args.b, &[p.k, p.n], &b),
            Buffer::write::<D>(&mut args.c, &[p.m, p.n], &c),
        ]
    }

    fn arguments<'py>(
        p: &BsrProblem,
        py: Python<'py>,
        tensors: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let mut tensors = tensors.into_iter();
        let mut next = || tensors.next();
        (next(), next(), next(), p.m, p.k, next(), next()).into_pyobject(py)
    }
}
