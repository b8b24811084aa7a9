//! `matmul`: two matrices of any library come in, their product goes out.

use pyo3::exceptions::PyNotImplementedError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use warplap::core::op::Op;
use warplap::ops::gemm::GemmArgs;
use warplap::{Cpu, Gemm, GemmProblem, Layout};

use crate::argument;
use crate::failure::rejected;
use crate::foreign::Described;
use crate::gpu;
use crate::lent::{Buffer, Lent};
use crate::state::state;
use crate::tensor::View;
use crate::torch::Torch;

/// A product and its memory.
struct Product {
    problem: GemmProblem,
    a: View,
    b: View,
}

/// How a matrix lies in memory: rows or columns contiguous, and the elements from one to the next.
fn lines(view: &View) -> Option<(Layout, u64)> {
    let ([rows, columns, ..], [down, right, ..]) = (view.shape, view.strides);
    let ld = |count: i64, step: i64, line: i64| {
        let ld = if count == 1 { line } else { step };
        (line..=warplap::core::problem::MAX_SIZE as i64).contains(&ld).then_some(ld as u64)
    };
    let row = (right == 1 || columns == 1).then(|| ld(rows, down, columns)).flatten();
    let col = || (down == 1 || rows == 1).then(|| ld(columns, right, rows)).flatten();
    row.map(|ld| (Layout::Row, ld)).or_else(|| col().map(|ld| (Layout::Col, ld)))
}

impl Product {
    #[inline]
    fn of(a: View, b: View) -> PyResult<Product> {
        let dtype = argument::float(&a, "a")?;
        if a.cuda().is_none() {
            argument::on_host(&a, "a")?;
        }
        argument::same(&b, "b", dtype, "a")?;
        argument::together(&b, "b", &a)?;
        argument::dims(&a, "a", 2)?;
        argument::dims(&b, "b", 2)?;
        let ([m, k, ..], n) = (a.shape, b.shape[1]);
        argument::shape(&b, "b", &[k, n])?;
        argument::sizes(&a, "a")?;
        argument::sizes(&b, "b")?;
        let form = "contiguous rows or columns";
        let (layout_a, lda) = lines(&a).ok_or_else(|| argument::strided(&a, "a", form))?;
        let (layout_b, ldb) = lines(&b).ok_or_else(|| argument::strided(&b, "b", form))?;
        let mut problem = GemmProblem::new(m as u64, n as u64, k as u64, dtype);
        (problem.a, problem.lda, problem.b, problem.ldb) = (layout_a, lda, layout_b, ldb);
        Ok(Product { problem, a, b })
    }

    /// Sets what depends on the output.
    #[inline]
    fn write_to(&mut self, out: &View) -> PyResult<()> {
        let p = &mut self.problem;
        argument::same(out, "out", p.dtype, "a")?;
        argument::together(out, "out", &self.a)?;
        argument::shape(out, "out", &[p.m as i64, p.n as i64])?;
        p.ldc = match lines(out) {
            Some((Layout::Row, ld)) => ld,
            _ => return Err(argument::strided(out, "out", "contiguous rows")),
        };
        let lowest = (self.a.address | self.b.address | out.address | 64).trailing_zeros();
        p.align = 1 << lowest;
        let inputs = [("a", &self.a, p.a_len()), ("b", &self.b, p.b_len())];
        argument::output(out, p.c_len(), &inputs)
    }

    /// Runs it. `objects` are the caller's own tensors, where they are torch's.
    #[inline]
    fn run(&self, py: Python<'_>, out: &View, objects: Option<[&Bound<'_, PyAny>; 3]>) -> PyResult<()> {
        let p = &self.problem;
        if let Some(ordinal) = self.a.cuda() {
            return gpu::gemm(py, ordinal, p, [self.a.address, self.b.address, out.address]);
        }
        state().desks().gemm.with(py, p, &(), |entry| {
            if let (Some(foreign), Some(objects)) = (&entry.foreign, objects) {
                return foreign.call(&(objects[0], objects[1], objects[2]).into_pyobject(py)?);
            }
            // SAFETY: the caller holds references to the objects behind the views for the time of this call, their
            // spans were checked, and `output` has seen to it that out shares nothing with them.
            let slices = unsafe { (self.a.slice(p.a_len()), self.b.slice(p.b_len()), out.slice_mut(p.c_len())) };
            let (Some(a), Some(b), Some(c)) = slices else { return Err(argument::unaligned("a, b or out")) };
            let args = GemmArgs::<Cpu> { problem: p, a, b, c };
            let kernel = &*entry.kernel;
            let done = if entry.brief { kernel.launch(args, &()) } else { py.detach(|| kernel.launch(args, &())) };
            done.map_err(|e| rejected(&e))
        })
    }
}

/// The product of two tensors of torch, computed at once: `None` where that is not for this path to do.
#[pyfunction]
#[pyo3(signature = (a, b, out=None))]
pub(crate) fn matmul_direct<'py>(
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
    if !direct {
        return Ok(None);
    }
    let (Ok(view_a), Ok(view_b)) = (torch.view(a, "a"), torch.view(b, "b")) else { return Ok(None) };
    let Ok(mut product) = Product::of(view_a, view_b) else { return Ok(None) };
    let (m, n) = (product.problem.m as i64, product.problem.n as i64);
    let out = match out {
        Some(out) => out,
        None => torch.empty(a, &[m, n])?,
    };
    let Ok(view) = torch.view(&out, "out") else { return Ok(None) };
    if product.write_to(&view).is_err() {
        return Ok(None);
    }
    match product.run(py, &view, Some([a, b, &out])) {
        // A device that cannot be used: the general way has torch to fall back on.
        Err(error) if error.is_instance_of::<PyNotImplementedError>(py) => Ok(None),
        outcome => outcome.map(|()| Some(out)),
    }
}

/// Writes the product of two matrices of any library into a third.
#[pyfunction]
pub(crate) fn matmul_into(a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>, out: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = a.py();
    let mut product = Product::of(View::of(a, "a")?, View::of(b, "b")?)?;
    let view = View::of(out, "out")?;
    product.write_to(&view)?;
    let torch = Torch::here(py).filter(|t| [a, b, out].iter().all(|o| t.is_tensor(o)));
    product.run(py, &view, torch.map(|_| [a, b, out]))
}

/// Whether a kernel was chosen already for a product: everything a call does before it launches.
#[pyfunction]
pub(crate) fn matmul_known(a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>, out: &Bound<'_, PyAny>) -> PyResult<bool> {
    let mut product = Product::of(View::of(a, "a")?, View::of(b, "b")?)?;
    product.write_to(&View::of(out, "out")?)?;
    let state = state();
    match product.a.cuda() {
        Some(ordinal) => {
            let desks = state.gpu(ordinal)?;
            // Part of what a call asks for.
            let _queue = desks.queue(a.py());
            Ok(desks.gemm.knows(&product.problem))
        }
        None => Ok(state.desks().gemm.knows(&product.problem)),
    }
}

/// The problem of a product, in its text form; with no output, one of its own is assumed.
#[pyfunction]
#[pyo3(signature = (a, b, out=None))]
pub(crate) fn matmul_problem(
    a: &Bound<'_, PyAny>,
    b: &Bound<'_, PyAny>,
    out: Option<&Bound<'_, PyAny>>,
) -> PyResult<String> {
    let mut product = Product::of(View::of(a, "a")?, View::of(b, "b")?)?;
    if let Some(out) = out {
        product.write_to(&View::of(out, "out")?)?;
    } else {
        product.problem.align = 1 << (product.a.address | product.b.address | 64).trailing_zeros();
    }
    Ok(Gemm::text(&product.problem))
}

impl Described for Gemm {
    fn buffers<D: Lent>(mut args: GemmArgs<'_, D>) -> Vec<Buffer> {
        let p = args.problem;
        let strides = |layout, ld| if layout == Layout::Row { [ld, 1] } else { [1, ld] };
        vec![
            Buffer::read::<D>(&args.a, &[p.m, p.k], &strides(p.a, p.lda)),
            Buffer::read::<D>(&args.b, &[p.k, p.n], &strides(p.b, p.ldb)),
            Buffer::write::<D>(&mut args.c, &[p.m, p.n], &[p.ldc, 1]),
        ]
    }

    fn arguments<'py>(
        _: &GemmProblem,
        py: Python<'py>,
        tensors: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, tensors)
    }
}
