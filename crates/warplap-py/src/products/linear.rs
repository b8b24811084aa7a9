//! `linear`: x, a weight and a bias of any library come in; act(x @ w.T + bias) goes out, plus a residual or times what a
//! gate lets through, as one product with an epilogue.

use pyo3::intern;
use pyo3::prelude::*;
use warplap::core::op::Op;
use warplap::{Activation, Gemm, Join};

use crate::call::direct::{Fresh, answer, call, direct};
use crate::call::failure::bad;
use crate::call::torch::{Made, Torch};
use crate::foreign::Choice;
use crate::products::gemm::{Product, SLOTS};
use crate::tensor::argument::{self, Checked};
use crate::tensor::view::View;

/// The caller's own tensors.
#[derive(Clone, Copy)]
struct Layer<'a, 'py> {
    x: &'a Bound<'py, PyAny>,
    w: &'a Bound<'py, PyAny>,
    bias: Option<&'a Bound<'py, PyAny>>,
    other: Option<Other<'a, 'py>>,
}

/// What a layer is joined with: its name, the tensor, and how.
type Other<'a, 'py> = (&'static str, &'a Bound<'py, PyAny>, Join);

/// One of the two, where one is given.
fn other<'a, 'py>(
    residual: Option<&'a Bound<'py, PyAny>>,
    times: Option<&'a Bound<'py, PyAny>>,
) -> PyResult<Option<Other<'a, 'py>>> {
    match (residual, times) {
        (Some(_), Some(_)) => Err(bad("times: is given beside residual, expected one of them")),
        (Some(residual), None) => Ok(Some(("residual", residual, Join::Add))),
        (None, times) => Ok(times.map(|times| ("times", times, Join::Mul))),
    }
}

impl<'py> Layer<'_, 'py> {
    /// By slot: the product's second matrix is the transposed weight.
    fn with(&self, out: Option<&Bound<'py, PyAny>>) -> PyResult<[Option<Bound<'py, PyAny>>; SLOTS]> {
        let turned = self.w.call_method0(intern!(self.w.py(), "t"))?;
        let other = self.other.map(|(_, other, _)| other.clone());
        Ok([Some(self.x.clone()), Some(turned), out.cloned(), self.bias.cloned(), other, None, None])
    }

    /// Whether all are torch's.
    fn of_torch(self, torch: &Torch) -> Option<Self> {
        let more = self.bias.into_iter().chain(self.other.map(|(_, other, _)| other));
        (torch.are_tensors(&[self.x, self.w]) && more.into_iter().all(|t| torch.is_tensor(t))).then_some(self)
    }

    /// The request, by the memory that `view` sees.
    fn product(self, act: Activation, view: impl Fn(&Bound<'py, PyAny>, &str) -> PyResult<View>) -> PyResult<Product> {
        let (x, w) = (view(self.x, "x")?, view(self.w, "w")?);
        argument::dims(&w, "w", 2)?;
        argument::dims(&x, "x", 2)?;
        argument::shape(&w, "w", &[w.shape[0], x.shape[1]])?;
        let bias = self.bias.map(|bias| view(bias, "bias")).transpose()?;
        let product = Product::of(["x", "w"], x, w.turned())?.finished(bias, act)?;
        match self.other {
            Some((name, other, join)) => product.joined(name, view(other, name)?, join),
            None => Ok(product),
        }
    }
}

/// The activation of a word; none where nothing is said.
fn activation(word: Option<&str>) -> PyResult<Activation> {
    let Some(word) = word else { return Ok(Activation::None) };
    word.parse().map_err(|()| bad(format!("activation: is '{word}', which no product has")))
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
        let Layer { x, w, bias, other } = self.1;
        let plain = self.0.problem.act == Activation::None && other.is_none();
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
    let (py, own) = (x.py(), Layer { x, w, bias, other: None });
    let Some(torch) = Torch::here(py) else { return Ok(None) };
    let is_direct = match (bias, &out) {
        (None, None) => torch.is_direct(py, &[x, w])?,
        (Some(bias), None) => torch.is_direct(py, &[x, w, bias])?,
        // Without a bias x stands in its place: it is asked about anyway.
        (_, Some(out)) => torch.is_direct(py, &[x, w, bias.unwrap_or(x), out])?,
    };
    if is_direct { at_once(torch, activation, own, out) } else { Ok(None) }
}

/// A layer over tensors that were looked at: `None` where they are not for the direct path after all.
#[inline]
fn at_once<'py>(
    torch: &Torch,
    activation: Option<&str>,
    own: Layer<'_, 'py>,
    out: Option<Bound<'py, PyAny>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = own.x.py();
    let Ok(act) = self::activation(activation) else { return Ok(None) };
    let Ok(product) = own.product(act, |object, name| torch.view(object, name)) else { return Ok(None) };
    let Some(out) = out else { return Ok(direct(py, new(torch, &product, own))?.flatten()) };
    let Ok(view) = torch.view(&out, "out") else { return Ok(None) };
    Ok(direct(py, into(product, own, &out, &view))?.map(|()| out))
}

/// A linear layer over tensors of torch joined with one more, computed at once: `None` where that is not for this path
/// to do.
#[pyfunction]
#[pyo3(signature = (x, w, bias, activation, residual, times, out=None))]
pub(crate) fn linear_joined<'py>(
    x: &Bound<'py, PyAny>,
    w: &Bound<'py, PyAny>,
    bias: Option<&Bound<'py, PyAny>>,
    activation: Option<&str>,
    residual: Option<&Bound<'py, PyAny>>,
    times: Option<&Bound<'py, PyAny>>,
    out: Option<Bound<'py, PyAny>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let (py, own) = (x.py(), Layer { x, w, bias, other: other(residual, times)? });
    let Some(torch) = Torch::here(py) else { return Ok(None) };
    let Some((_, joined, _)) = own.other else { return Ok(None) };
    // x stands in the place of what is not given: it is asked about anyway.
    if !torch.is_direct(py, &[x, w, bias.unwrap_or(x), joined, out.as_ref().unwrap_or(x)])? {
        return Ok(None);
    }
    at_once(torch, activation, own, out)
}

/// A linear layer over tensors of torch as a new one.
#[pyfunction]
#[pyo3(signature = (x, w, bias=None, activation=None, residual=None, times=None))]
pub(crate) fn linear_new<'py>(
    x: &Bound<'py, PyAny>,
    w: &Bound<'py, PyAny>,
    bias: Option<&Bound<'py, PyAny>>,
    activation: Option<&str>,
    residual: Option<&Bound<'py, PyAny>>,
    times: Option<&Bound<'py, PyAny>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let own = Layer { x, w, bias, other: other(residual, times)? };
    let torch = Torch::here(x.py()).filter(|t| own.of_torch(t).is_some());
    let torch = torch.ok_or_else(|| bad("x, w, bias, residual or times: is no tensor of torch"))?;
    new(torch, &own.product(self::activation(activation)?, View::of)?, own)
}

/// Writes a linear layer over tensors of any library into one more.
#[pyfunction]
#[pyo3(signature = (x, w, bias, activation, out, residual=None, times=None))]
pub(crate) fn linear_into(
    x: &Bound<'_, PyAny>,
    w: &Bound<'_, PyAny>,
    bias: Option<&Bound<'_, PyAny>>,
    activation: Option<&str>,
    out: &Bound<'_, PyAny>,
    residual: Option<&Bound<'_, PyAny>>,
    times: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let own = Layer { x, w, bias, other: other(residual, times)? };
    into(own.product(self::activation(activation)?, View::of)?, own, out, &View::of(out, "out")?)
}

/// The problem of a linear layer, in its text form; with no output, one of its own is assumed.
#[pyfunction]
#[pyo3(signature = (x, w, bias=None, activation=None, out=None, residual=None, times=None))]
pub(crate) fn linear_problem(
    x: &Bound<'_, PyAny>,
    w: &Bound<'_, PyAny>,
    bias: Option<&Bound<'_, PyAny>>,
    activation: Option<&str>,
    out: Option<&Bound<'_, PyAny>>,
    residual: Option<&Bound<'_, PyAny>>,
    times: Option<&Bound<'_, PyAny>>,
) -> PyResult<String> {
    let other = other(residual, times)?;
    let mut product = Layer { x, w, bias, other }.product(self::activation(activation)?, View::of)?;
    if let Some(out) = out {
        product.write_to(&View::of(out, "out")?)?;
    }
    Ok(Gemm::text(&product.problem))
}
