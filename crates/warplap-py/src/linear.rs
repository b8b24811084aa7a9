//! `linear`: x, a weight and a bias of any library come in; act(x @ w.T + bias) goes out, as one product with an
//! epilogue.

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use warplap::core::op::Op;
use warplap::{Activation, Gemm};

use crate::argument::{self, Checked};
use crate::call::{Fresh, answer, call, direct};
use crate::foreign::Choice;
use crate::gemm::{Product, SLOTS};
use crate::tensor::View;
use crate::torch::{Made, Torch};

/// The caller's own tensors.
#[derive(Clone, Copy)]
struct Layer<'a, 'py> {
    x: &'a Bound<'py, PyAny>,
    w: &'a Bound<'py, PyAny>,
    bias: Option<&'a Bound<'py, PyAny>>,
}

impl<'py> Layer<'_, 'py> {
    /// By slot: the product's second matrix is the transposed weight.
    fn with(&self, out: Option<&Bound<'py, PyAny>>) -> PyResult<[Option<Bound<'py, PyAny>>; SLOTS]> {
        let turned = self.w.call_method0(intern!(self.w.py(), "t"))?;
        Ok([Some(self.x.clone()), Some(turned), out.cloned(), self.bias.cloned()])
    }

    /// Whether all are torch's.
    fn of_torch(self, torch: &Torch) -> Option<Self> {
        (torch.are_tensors(&[self.x, self.w]) && self.bias.is_none_or(|b| torch.is_tensor(b))).then_some(self)
    }

    /// The request, by the memory that `view` sees.
    fn product(self, act: Activation, view: impl Fn(&Bound<'py, PyAny>, &str) -> PyResult<View>) -> PyResult<Product> {
        let (x, w) = (view(self.x, "x")?, view(self.w, "w")?);
        argument::dims(&w, "w", 2)?;
        argument::dims(&x, "x", 2)?;
        argument::shape(&w, "w", &[w.shape[0], x.shape[1]])?;
        let bias = self.bias.map(|bias| view(bias, "bias")).transpose()?;
        Product::of(["x", "w"], x, w.turned())?.finished(bias, act)
    }
}

/// The activation of a word; none where nothing is said.
fn activation(word: Option<&str>) -> PyResult<Activation> {
    let Some(word) = word else { return Ok(Activation::None) };
    word.parse().map_err(|()| PyValueError::new_err(format!("activation: is '{word}', which no product has")))
}

impl<'py> Fresh<'py, SLOTS> for (&Product, Layer<'_, 'py>) {
    #[inline]
    fn make(&self, torch: &Torch) -> PyResult<Option<Made<'py>>> {
        let p = &self.0.problem;
        torch.empty(self.1.x, self.0.first(), &[p.m as i64, p.n as i64]).map(Some)
    }

    #[inline]
    fn memory<'a>(&'a self, out: &'a View) -> PyResult<Checked<'a, SLOTS>> {
        self.0.memory(out)
    }

    fn tensors(&self, out: Option<&Bound<'py, PyAny>>) -> PyResult<[Option<Bound<'py, PyAny>>; SLOTS]> {
        self.1.with(out)
    }

    #[inline]
    fn as_called(&self, choice: &Choice) -> Option<PyResult<Bound<'py, PyAny>>> {
        let Layer { x, w, bias } = self.1;
        let plain = self.0.problem.act == Activation::None;
        let function = choice.as_called("linear").filter(|_| plain)?;
        Some(function.bind(x.py()).call1((x, w, bias)))
    }
}

/// A product of tensors of torch as a new one.
#[inline]
fn new<'py>(torch: &Torch, product: &Product, own: Layer<'_, 'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let gpu = argument::place(&product.inputs())?;
    answer::<Gemm, SLOTS>(torch, own.x.py(), &product.problem, gpu, &(product, own))
}

/// Writes a product into one more tensor or array.
fn into(mut product: Product, own: Layer<'_, '_>, out: &Bound<'_, PyAny>, view: &View) -> PyResult<()> {
    product.write_to(view)?;
    let py = own.x.py();
    let torch = Torch::here(py).filter(|t| own.of_torch(t).is_some() && t.is_tensor(out));
    let tensors = || own.with(Some(out));
    let tensors = torch.map(|_| &tensors as _);
    call::<Gemm, SLOTS>(py, &product.problem, &product.memory(view)?, tensors, |_| ())
}

/// A linear layer over tensors of torch, computed at once: `None` where that is not for this path to do.
#[pyfunction]
#[pyo3(signature = (x, w, bias, activation, out=None))]
pub(crate) fn linear_direct<'py>(
    x: &Bound<'py, PyAny>,
    w: &Bound<'py, PyAny>,
    bias: Option<&Bound<'py, PyAny>>,
    activation: Option<&str>,
    out: Option<Bound<'py, PyAny>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let (py, own) = (x.py(), Layer { x, w, bias });
    let Some(torch) = Torch::here(py) else { return Ok(None) };
    let is_direct = match (bias, &out) {
        (None, None) => torch.is_direct(py, &[x, w])?,
        (Some(bias), None) => torch.is_direct(py, &[x, w, bias])?,
        // Without a bias x stands in its place: it is asked about anyway.
        (_, Some(out)) => torch.is_direct(py, &[x, w, bias.unwrap_or(x), out])?,
    };
    if !is_direct {
        return Ok(None);
    }
    let Ok(act) = self::activation(activation) else { return Ok(None) };
    let Ok(product) = own.product(act, |object, name| torch.view(object, name)) else { return Ok(None) };
    let Some(out) = out else { return Ok(direct(py, new(torch, &product, own))?.flatten()) };
    let Ok(view) = torch.view(&out, "out") else { return Ok(None) };
    Ok(direct(py, into(product, own, &out, &view))?.map(|()| out))
}

/// A linear layer over tensors of torch as a new one.
#[pyfunction]
#[pyo3(signature = (x, w, bias=None, activation=None))]
pub(crate) fn linear_new<'py>(
    x: &Bound<'py, PyAny>,
    w: &Bound<'py, PyAny>,
    bias: Option<&Bound<'py, PyAny>>,
    activation: Option<&str>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let own = Layer { x, w, bias };
    let torch = Torch::here(x.py()).filter(|t| own.of_torch(t).is_some());
    let torch = torch.ok_or_else(|| PyValueError::new_err("x, w or bias: is no tensor of torch"))?;
    new(torch, &own.product(self::activation(activation)?, View::of)?, own)
}

/// Writes a linear layer over tensors of any library into one more.
#[pyfunction]
#[pyo3(signature = (x, w, bias, activation, out))]
pub(crate) fn linear_into(
    x: &Bound<'_, PyAny>,
    w: &Bound<'_, PyAny>,
    bias: Option<&Bound<'_, PyAny>>,
    activation: Option<&str>,
    out: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let own = Layer { x, w, bias };
    into(own.product(self::activation(activation)?, View::of)?, own, out, &View::of(out, "out")?)
}

/// The problem of a linear layer, in its text form; with no output, one of its own is assumed.
#[pyfunction]
#[pyo3(signature = (x, w, bias=None, activation=None, out=None))]
pub(crate) fn linear_problem(
    x: &Bound<'_, PyAny>,
    w: &Bound<'_, PyAny>,
    bias: Option<&Bound<'_, PyAny>>,
    activation: Option<&str>,
    out: Option<&Bound<'_, PyAny>>,
) -> PyResult<String> {
    let mut product = Layer { x, w, bias }.product(self::activation(activation)?, View::of)?;
    if let Some(out) = out {
        product.write_to(&View::of(out, "out")?)?;
    }
    Ok(Gemm::text(&product.problem))
}
