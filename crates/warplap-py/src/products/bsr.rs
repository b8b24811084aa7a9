//! `bsr_matmul`: a block-sparse and a dense matrix come in, their product goes out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};
use warplap::core::op::Op;
use warplap::cuda::Stream;
use warplap::ops::bsr::Factor;
use warplap::{Bsr, BsrProblem};

use crate::call::direct::{call, direct, is_known};
use crate::call::torch::Torch;
use crate::tensor::argument::{self, CallArgument, Checked};
use crate::tensor::block_structure::{Frame, Structure, version};
use crate::tensor::view::View;

/// Slots of a product.
const SLOTS: usize = 7;

/// A product and its memory.
pub(crate) struct SparseProduct {
    pub(crate) problem: BsrProblem,
    structure: Arc<Structure>,
    values: View,
    b: View,
    bias: Option<View>,
}

impl SparseProduct {
    #[inline]
    pub(crate) fn of(structure: Arc<Structure>, values: View, b: View) -> PyResult<SparseProduct> {
        let mut p = structure.problem;
        p.dtype = argument::floats(&[("a", &values), ("b", &b)])?;
        // Blocks of a transpose lie as those of the matrix do.
        let (tall, wide) = if p.turned { (p.bc, p.bs) } else { (p.bs, p.bc) };
        argument::shape(&values, "a.values()", &[p.nnz as i64, tall as i64, wide as i64])?;
        argument::compact(&values, "a.values()", "contiguous row-major blocks")?;
        argument::dims(&b, "b", 2)?;
        p.n = b.shape[1] as u64;
        argument::shape(&b, "b", &[p.k as i64, p.n as i64])?;
        argument::sizes(&b, "b")?;
        p.b = argument::order(&b, "b")?;
        Ok(SparseProduct { problem: p, structure, values, b, bias: None })
    }

    /// With one number added to each row of the output.
    pub(crate) fn with_bias(mut self, bias: Option<View>) -> PyResult<SparseProduct> {
        if let Some(bias) = &bias {
            let p = &mut self.problem;
            argument::same(bias, "bias", p.dtype, "a")?;
            argument::shape(bias, "bias", &[p.m as i64])?;
            argument::compact(bias, "bias", "contiguous")?;
            (p.bias, p.beta) = (true, Factor::ONE);
        }
        Ok(SparseProduct { bias, ..self })
    }

    /// Takes into the problem what depends on the output.
    #[inline]
    fn write_to(&mut self, out: &View) -> PyResult<()> {
        let p = &mut self.problem;
        argument::same(out, "out", p.dtype, "a")?;
        argument::shape(out, "out", &[p.m as i64, p.n as i64])?;
        p.c = argument::order(out, "out")?;
        Ok(())
    }

    #[inline]
    fn memory<'a>(&'a self, out: &'a View) -> PyResult<Checked<'a, SLOTS>> {
        let [rows, columns] = self.structure.call_arguments();
        let (values, b) = (CallArgument::read("a", &self.values), CallArgument::read("b", &self.b));
        let bias = self.bias.as_ref().map_or(CallArgument::NONE, |bias| CallArgument::read("bias", bias));
        argument::checked([rows, columns, values, b, CallArgument::write("out", out), bias, self.structure.place()])
    }

    /// Writes it; `own` are the caller's own tensors, where they are torch's.
    #[inline]
    pub(crate) fn run(&mut self, py: Python<'_>, out: &View, own: Option<&Operands<'_, '_>>) -> PyResult<()> {
        self.write_to(out)?;
        let tensors = own.map(|o| {
            || {
                let [rows, columns] = self.structure.tensors(o.crow, o.col)?;
                Ok([rows, columns, Some(o.values.clone()), Some(o.b.clone()), Some(o.out.clone()), None, None])
            }
        });
        let (tensors, memory) = (tensors.as_ref().map(|t| t as _), self.memory(out)?);
        call::<Bsr, SLOTS>(py, &self.problem, &memory, tensors, |queue| self.structure.launched(queue))
    }
}

/// The caller's own tensors; where `col` is nothing, `crow` is the sparse tensor itself.
pub(crate) struct Operands<'a, 'py> {
    crow: &'a Bound<'py, PyAny>,
    col: Option<&'a Bound<'py, PyAny>>,
    values: &'a Bound<'py, PyAny>,
    b: &'a Bound<'py, PyAny>,
    out: &'a Bound<'py, PyAny>,
}

/// What is kept of a sparse tensor: who it was, how often it was changed, where its values were.
struct SeenMatrix {
    who: Py<PyWeakrefReference>,
    version: u64,
    values: usize,
    structure: Arc<Structure>,
}

static SEEN: Mutex<Option<HashMap<usize, SeenMatrix>>> = Mutex::new(None);
const KEEP: usize = 256;

fn seen() -> std::sync::MutexGuard<'static, Option<HashMap<usize, SeenMatrix>>> {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The structure and the values of a block-sparse tensor of torch. Reading the index tensors out of it takes longer
/// than all the rest of a call, so they are read again only when it is another tensor, was changed, or holds other
/// values.
fn parts<'py>(a: &Bound<'py, PyAny>) -> PyResult<(Arc<Structure>, Bound<'py, PyAny>, View)> {
    let py = a.py();
    let torch = Torch::here(py).ok_or_else(|| PyValueError::new_err("a: torch is not there"))?;
    let values = a.call_method0(intern!(py, "values"))?;
    let view = torch.view(&values, "a.values()")?;
    let now = version(a);
    if let Some(answer) = seen().get_or_insert_default().get(&(a.as_ptr() as usize)) {
        let same = answer.who.bind(py).upgrade().is_some_and(|who| who.is(a));
        if same && now == Some(answer.version) && answer.values == view.address {
            return Ok((answer.structure.clone(), values, view));
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
        let former = all.insert(a.as_ptr() as usize, SeenMatrix { who, version, values: view.address, structure });
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
    let is_direct = match &out {
        Some(out) => torch.is_direct(py, &[a, b, out])?,
        None => torch.is_direct(py, &[a, b])?,
    };
    if !is_direct || !torch.is_bsr(a)? {
        return Ok(None);
    }
    let (Ok((structure, values, view)), Ok(dense)) = (parts(a), torch.view(b, "b")) else { return Ok(None) };
    let Ok(mut product) = SparseProduct::of(structure, view, dense) else { return Ok(None) };
    let (out, view) = match out {
        Some(out) => {
            let Ok(view) = torch.view(&out, "out") else { return Ok(None) };
            (out, view)
        }
        None => torch.empty(b, &product.b, &[product.problem.m as i64, product.problem.n as i64])?,
    };
    let own = Operands { crow: a, col: None, values: &values, b, out: &out };
    let done = direct(py, product.run(py, &view, Some(&own)))?;
    Ok(done.map(|()| out))
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
    let mut product = SparseProduct::of(structure, view, torch.view(b, "b")?)?;
    let out = torch.view(out, "out")?;
    product.write_to(&out)?;
    let launched = |queue: &Stream| product.structure.launched(queue);
    is_known::<Bsr, SLOTS>(py, &product.problem, &product.memory(&out)?, launched)
}

fn product(
    (crow, col, values): (&Bound<'_, PyAny>, &Bound<'_, PyAny>, &Bound<'_, PyAny>),
    (m, k): (u64, u64),
    b: &Bound<'_, PyAny>,
    turned: bool,
) -> PyResult<SparseProduct> {
    let view = View::of(values, "a.values()")?;
    argument::dims(&view, "a.values()", 3)?;
    let (bs, bc) = (view.shape[1].max(0) as u64, view.shape[2].max(0) as u64);
    let mut structure = Structure::of(crow, col, Frame { m, k, bs, bc })?;
    if turned {
        structure = structure.turned(b.py())?;
    }
    SparseProduct::of(structure, view, View::of(b, "b")?)
}

/// Writes the product of a block-sparse matrix, given by its parts, and a dense one into a third; `turned`: of its
/// transpose. A bias has one element for each row of the output.
#[pyfunction]
#[pyo3(signature = (crow, col, values, m, k, b, out, bias=None, turned=false))]
#[expect(clippy::too_many_arguments, reason = "the parts of a matrix, and what is done with it")]
pub(crate) fn bsr_into(
    crow: &Bound<'_, PyAny>,
    col: &Bound<'_, PyAny>,
    values: &Bound<'_, PyAny>,
    m: u64,
    k: u64,
    b: &Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
    bias: Option<&Bound<'_, PyAny>>,
    turned: bool,
) -> PyResult<()> {
    let py = crow.py();
    let bias = bias.map(|bias| View::of(bias, "bias")).transpose()?;
    let mut product = product((crow, col, values), (m, k), b, turned)?.with_bias(bias)?;
    // Callables have neither a bias nor a transpose.
    let plain = product.bias.is_none() && !turned;
    let torch = Torch::here(py).filter(|t| plain && t.are_tensors(&[crow, col, values, b, out]));
    let own = Operands { crow, col: Some(col), values, b, out };
    product.run(py, &View::of(out, "out")?, torch.map(|_| &own))
}

/// The problem of a product, in its text form; with a bias and an output where they are given.
#[pyfunction]
#[pyo3(signature = (crow, col, values, m, k, b, out=None, bias=None))]
#[expect(clippy::too_many_arguments, reason = "the parts of a matrix, and what is done with it")]
pub(crate) fn bsr_problem(
    crow: &Bound<'_, PyAny>,
    col: &Bound<'_, PyAny>,
    values: &Bound<'_, PyAny>,
    m: u64,
    k: u64,
    b: &Bound<'_, PyAny>,
    out: Option<&Bound<'_, PyAny>>,
    bias: Option<&Bound<'_, PyAny>>,
) -> PyResult<String> {
    let bias = bias.map(|bias| View::of(bias, "bias")).transpose()?;
    let mut product = product((crow, col, values), (m, k), b, false)?.with_bias(bias)?;
    if let Some(out) = out {
        product.write_to(&View::of(out, "out")?)?;
    }
    Ok(Bsr::text(&product.problem))
}
