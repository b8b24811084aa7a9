//! `matmul`: two matrices of any library come in, their product goes out.

use pyo3::prelude::*;
use warplap::core::op::Op;
use warplap::{Activation, Gemm, GemmProblem, Join, Layout};

use crate::call::direct::{Fresh, answer, call, direct, is_known};
use crate::call::torch::{Made, Torch};
use crate::foreign::Choice;
use crate::tensor::argument::{self, CallArgument, Checked};
use crate::tensor::view::View;

/// Slots of a product.
pub(crate) const SLOTS: usize = warplap::ops::gemm::SLOTS;

/// What a caller calls the two matrices.
pub(crate) type Names = [&'static str; 2];
const NAMES: Names = ["a", "b"];

/// A product and its memory.
pub(crate) struct Product {
    pub(crate) problem: GemmProblem,
    names: Names,
    a: View,
    b: View,
    bias: Option<View>,
    /// What it is joined with, and what the caller calls that.
    joined: Option<(&'static str, View)>,
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
    pub(crate) fn of(names: Names, a: View, b: View) -> PyResult<Product> {
        let [name_a, name_b] = names;
        let dtype = argument::floats(&[(name_a, &a), (name_b, &b)])?;
        argument::dims(&a, name_a, 2)?;
        argument::dims(&b, name_b, 2)?;
        let ([m, k, ..], n) = (a.shape, b.shape[1]);
        argument::shape(&b, name_b, &[k, n])?;
        argument::sizes(&a, name_a)?;
        argument::sizes(&b, name_b)?;
        let form = "contiguous rows or columns";
        let (layout_a, lda) = lines(&a).ok_or_else(|| argument::strided(&a, name_a, form))?;
        let (layout_b, ldb) = lines(&b).ok_or_else(|| argument::strided(&b, name_b, form))?;
        let mut problem = GemmProblem::new(m as u64, n as u64, k as u64, dtype);
        (problem.a, problem.lda, problem.b, problem.ldb) = (layout_a, lda, layout_b, ldb);
        problem.align = 1 << (a.address | b.address | 64).trailing_zeros();
        Ok(Product { problem, names, a, b, bias: None, joined: None })
    }

    /// The product with a bias and an activation.
    #[inline]
    pub(crate) fn finished(mut self, bias: Option<View>, act: Activation) -> PyResult<Product> {
        let p = &mut self.problem;
        if let Some(bias) = &bias {
            argument::same(bias, "bias", p.dtype, self.names[0])?;
            argument::shape(bias, "bias", &[p.n as i64])?;
            argument::compact(bias, "bias", "contiguous elements")?;
            p.align = 1 << (bias.address | p.align as usize).trailing_zeros();
        }
        (p.bias, p.act, self.bias) = (bias.is_some(), act, bias);
        Ok(self)
    }

    /// The product joined with another matrix, which lies as a new output does. `name` is what the caller calls it.
    pub(crate) fn joined(mut self, name: &'static str, other: View, join: Join) -> PyResult<Product> {
        let p = &mut self.problem;
        argument::same(&other, name, p.dtype, self.names[0])?;
        argument::shape(&other, name, &[p.m as i64, p.n as i64])?;
        argument::compact(&other, name, "contiguous rows without padding")?;
        p.align = 1 << (other.address | p.align as usize).trailing_zeros();
        (p.join, self.joined) = (join, Some((name, other)));
        Ok(self)
    }

    /// The first matrix.
    #[inline]
    pub(crate) fn first(&self) -> &View {
        &self.a
    }

    /// Takes into the problem what depends on the output.
    #[inline]
    pub(crate) fn write_to(&mut self, out: &View) -> PyResult<()> {
        let p = &mut self.problem;
        argument::same(out, "out", p.dtype, self.names[0])?;
        argument::shape(out, "out", &[p.m as i64, p.n as i64])?;
        p.ldc = match lines(out) {
            Some((Layout::Row, ld)) => ld,
            _ => return Err(argument::strided(out, "out", "contiguous rows")),
        };
        p.align = 1 << (out.address | p.align as usize).trailing_zeros();
        Ok(())
    }

    /// What is read, by slot but for the output.
    #[inline]
    pub(crate) fn inputs(&self) -> [CallArgument<'_>; SLOTS - 1] {
        let bias = CallArgument::maybe("bias", self.bias.as_ref());
        let joined = self
            .joined
            .as_ref()
            .map_or(CallArgument::maybe("joined", None), |(name, view)| CallArgument::read(name, view));
        let [b2, scale] = ["b2", "scale"].map(|name| CallArgument::maybe(name, None));
        [
            CallArgument::read(self.names[0], &self.a),
            CallArgument::read(self.names[1], &self.b),
            bias,
            joined,
            b2,
            scale,
        ]
    }

    #[inline]
    pub(crate) fn memory<'a>(&'a self, out: &'a View) -> PyResult<Checked<'a, SLOTS>> {
        let [a, b, bias, joined, b2, scale] = self.inputs();
        argument::checked([a, b, CallArgument::write("out", out), bias, joined, b2, scale])
    }

    /// Writes it, without a bias. `tensors` are the caller's own, where they are torch's.
    #[inline]
    fn run(&mut self, py: Python<'_>, out: &View, tensors: Option<[&Bound<'_, PyAny>; 3]>) -> PyResult<()> {
        self.write_to(out)?;
        let own = tensors.map(|[a, b, out]| {
            move || Ok([Some(a.clone()), Some(b.clone()), Some(out.clone()), None, None, None, None])
        });
        call::<Gemm, SLOTS>(py, &self.problem, &self.memory(out)?, own.as_ref().map(|t| t as _), |_| ())
    }
}

impl<'py> Fresh<'py, SLOTS> for (&Product, [&Bound<'py, PyAny>; 2]) {
    #[inline]
    fn make(&self, torch: &Torch) -> PyResult<Option<Made<'py>>> {
        let p = &self.0.problem;
        torch.empty(self.1[0], &self.0.a, &[p.m as i64, p.n as i64]).map(Some)
    }

    #[inline]
    fn memory<'a>(&'a self, out: &'a View) -> PyResult<Checked<'a, SLOTS>> {
        self.0.memory(out)
    }

    fn tensors(&self, out: Option<&Bound<'py, PyAny>>) -> PyResult<[Option<Bound<'py, PyAny>>; SLOTS]> {
        let [a, b] = self.1;
        Ok([Some(a.clone()), Some(b.clone()), out.cloned(), None, None, None, None])
    }

    #[inline]
    fn as_called(&self, choice: &Choice) -> Option<PyResult<Bound<'py, PyAny>>> {
        let [a, b] = self.1;
        Some(choice.as_called("matmul")?.bind(a.py()).call1((a, b)))
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
    let is_direct = match &out {
        Some(out) => torch.is_direct(py, &[a, b, out])?,
        None => torch.is_direct(py, &[a, b])?,
    };
    if !is_direct {
        return Ok(None);
    }
    let (Ok(view_a), Ok(view_b)) = (torch.view(a, "a"), torch.view(b, "b")) else { return Ok(None) };
    let Ok(mut product) = Product::of(NAMES, view_a, view_b) else { return Ok(None) };
    let Some(out) = out else {
        let gpu = argument::place(&product.inputs())?;
        return Ok(direct(py, answer::<Gemm, SLOTS>(torch, py, &product.problem, gpu, &(&product, [a, b])))?.flatten());
    };
    let Ok(view) = torch.view(&out, "out") else { return Ok(None) };
    let done = direct(py, product.run(py, &view, Some([a, b, &out])))?;
    Ok(done.map(|()| out))
}

/// Writes the product of two matrices of any library into a third.
#[pyfunction]
pub(crate) fn matmul_into(a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>, out: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = a.py();
    let mut product = Product::of(NAMES, View::of(a, "a")?, View::of(b, "b")?)?;
    let torch = Torch::here(py).filter(|t| t.are_tensors(&[a, b, out]));
    product.run(py, &View::of(out, "out")?, torch.map(|_| [a, b, out]))
}

/// Whether a kernel was chosen already for a product: everything a call does before it launches.
#[pyfunction]
pub(crate) fn matmul_known(a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>, out: &Bound<'_, PyAny>) -> PyResult<bool> {
    let mut product = Product::of(NAMES, View::of(a, "a")?, View::of(b, "b")?)?;
    let view = View::of(out, "out")?;
    product.write_to(&view)?;
    is_known::<Gemm, SLOTS>(a.py(), &product.problem, &product.memory(&view)?, |_| ())
}

/// The problem of a product, in its text form; with no output, one of its own is assumed.
#[pyfunction]
#[pyo3(signature = (a, b, out=None))]
pub(crate) fn matmul_problem(
    a: &Bound<'_, PyAny>,
    b: &Bound<'_, PyAny>,
    out: Option<&Bound<'_, PyAny>>,
) -> PyResult<String> {
    let mut product = Product::of(NAMES, View::of(a, "a")?, View::of(b, "b")?)?;
    if let Some(out) = out {
        product.write_to(&View::of(out, "out")?)?;
    }
    Ok(Gemm::text(&product.problem))
}
