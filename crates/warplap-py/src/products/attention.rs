//! `attention`: queries, keys and values of any library come in, what they attend to goes out.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use warplap::core::op::Op;
use warplap::ops::attention::{Mask, Order, Strides};
use warplap::{Attention, AttentionProblem};

use crate::call::direct::{Fresh, answer, call, direct};
use crate::call::torch::{Made, Torch};
use crate::tensor::argument::{self, CallArgument, Checked};
use crate::tensor::view::View;

/// Slots of attention.
const SLOTS: usize = 12;

/// Those that are read.
const INPUTS: usize = 4;

/// The caller's own tensors.
#[derive(Clone, Copy)]
struct QkvMask<'a, 'py> {
    q: &'a Bound<'py, PyAny>,
    k: &'a Bound<'py, PyAny>,
    v: &'a Bound<'py, PyAny>,
    mask: Option<&'a Bound<'py, PyAny>>,
}

impl<'py> QkvMask<'_, 'py> {
    fn with(&self, out: Option<&Bound<'py, PyAny>>) -> [Option<Bound<'py, PyAny>>; SLOTS] {
        let [q, k, v] = [self.q, self.k, self.v].map(|t| Some(t.clone()));
        [q, k, v, self.mask.cloned(), out.cloned(), None, None, None, None, None, None, None]
    }

    /// Whether all are torch's.
    fn of_torch(self, torch: &Torch) -> Option<Self> {
        let mask = self.mask.is_none_or(|m| torch.is_tensor(m));
        (mask && torch.are_tensors(&[self.q, self.k, self.v])).then_some(self)
    }
}

/// A request and its memory.
struct Request {
    problem: AttentionProblem,
    q: View,
    k: View,
    v: View,
    mask: Option<View>,
    /// Whether the tensors lie exactly as the problem says; gaps between rows or heads are followed by some callables.
    exact: bool,
}

/// Whether a tensor lies as the problem says.
fn has_layout(view: &View, s: Strides) -> bool {
    let expected = [s.batch, s.head, s.row, 1];
    (0..4).all(|d| view.shape[d] == 1 || view.strides[d] == expected[d] as i64)
}

impl Request {
    #[inline]
    fn of([q, k, v]: [View; 3], mask: Option<View>, causal: bool, scale: Option<f64>) -> PyResult<Request> {
        let dtype = argument::floats(&[("q", &q), ("k", &k), ("v", &v)])?;
        for (view, name) in [(&q, "q"), (&k, "k"), (&v, "v")] {
            argument::dims(view, name, 4)?;
            argument::sizes(view, name)?;
        }
        let ([b, h, sq, d, ..], [_, hkv, sk, ..], dv) = (q.shape, k.shape, v.shape[3]);
        argument::shape(&k, "k", &[b, hkv, sk, d])?;
        argument::shape(&v, "v", &[b, hkv, sk, dv])?;
        if h % hkv != 0 {
            let what = format!("k: has {hkv} heads, expected a divisor of q's {h}");
            return Err(PyValueError::new_err(what));
        }
        let mut p = AttentionProblem::new(b as u64, h as u64, sq as u64, sk as u64, d as u64, dtype);
        (p.hkv, p.dv, p.causal) = (hkv as u64, dv as u64, causal);
        if d > 1024 || dv > 1024 {
            return Err(PyValueError::new_err(format!("q, v: have heads of {d} and {dv}, expected at most 1024")));
        }
        if let Some(scale) = scale {
            if !scale.is_finite() || scale.abs() > 65536.0 {
                return Err(PyValueError::new_err(format!("scale: is {scale}, expected a number up to 65536")));
            }
            p = p.with_scale(scale as f32);
        }
        if let Some(mask) = &mask {
            argument::same(mask, "mask", dtype, "q")?;
            argument::shape(mask, "mask", &[sq, sk])?;
            argument::compact(mask, "mask", "contiguous rows")?;
            p.mask = Mask::Add;
        }
        let all = |p: &AttentionProblem| {
            has_layout(&q, p.q_strides()) && has_layout(&k, p.k_strides()) && has_layout(&v, p.v_strides())
        };
        let mut exact = all(&p);
        if !exact {
            p.layout = Order::Bshd;
            exact = all(&p);
        }
        if !exact && q.strides[1] > q.strides[2] {
            p.layout = Order::Bhsd;
        }
        Ok(Request { problem: p, q, k, v, mask, exact })
    }

    /// Takes into the problem what depends on the output.
    #[inline]
    fn write_to(&mut self, out: &View) -> PyResult<()> {
        let p = &self.problem;
        argument::same(out, "out", p.dtype, "q")?;
        argument::shape(out, "out", &[p.b as i64, p.h as i64, p.sq as i64, p.dv as i64])?;
        if !self.exact {
            return Err(argument::strided(&self.q, "q, k or v", "all in order bhsd, or all in order bshd"));
        }
        if !has_layout(out, p.o_strides()) {
            // With one head or one query the inputs lie in both orders.
            let mut other = *p;
            other.layout = if p.layout == Order::Bhsd { Order::Bshd } else { Order::Bhsd };
            let inputs = has_layout(&self.q, other.q_strides()) && has_layout(&self.k, other.k_strides());
            if !(has_layout(out, other.o_strides()) && inputs && has_layout(&self.v, other.v_strides())) {
                return Err(argument::strided(out, "out", "the order of q"));
            }
            self.problem = other;
        }
        Ok(())
    }

    #[inline]
    fn inputs(&self) -> [CallArgument<'_>; INPUTS] {
        let mask = CallArgument::maybe("mask", self.mask.as_ref());
        [CallArgument::read("q", &self.q), CallArgument::read("k", &self.k), CallArgument::read("v", &self.v), mask]
    }

    #[inline]
    fn memory<'a>(&'a self, out: &'a View) -> PyResult<Checked<'a, SLOTS>> {
        let [q, k, v, mask] = self.inputs();
        let out = CallArgument::write("out", out);
        // Nobody who calls this way asks for log-sum-exps, has slopes, drops weights or has keys in pages or sequences
        // that are packed.
        let [lse, slopes, seed, table, lengths, offsets_q, offsets_k] = [CallArgument::NONE; 7];
        argument::checked([q, k, v, mask, out, lse, slopes, seed, table, lengths, offsets_q, offsets_k])
    }

    /// Gives it as a new tensor of torch; nothing where the tensors have gaps and no choice is known that follows them.
    #[inline]
    fn answer<'py>(&self, torch: &Torch, own: QkvMask<'_, 'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let gpu = argument::place(&self.inputs())?;
        answer::<Attention, SLOTS>(torch, own.q.py(), &self.problem, gpu, &(self, own))
    }
}

impl<'py> Fresh<'py, SLOTS> for (&Request, QkvMask<'_, 'py>) {
    #[inline]
    fn make(&self, torch: &Torch) -> PyResult<Option<Made<'py>>> {
        let (Request { problem: p, exact: true, q, .. }, own) = self else { return Ok(None) };
        let [b, h, sq, dv] = [p.b, p.h, p.sq, p.dv].map(|size| size as i64);
        match p.layout {
            Order::Bhsd => torch.empty(own.q, q, &[b, h, sq, dv]),
            Order::Bshd => torch.empty_strided(own.q, q, &[b, h, sq, dv], &[sq * h * dv, dv, h * dv, 1]),
        }
        .map(Some)
    }

    #[inline]
    fn memory<'a>(&'a self, out: &'a View) -> PyResult<Checked<'a, SLOTS>> {
        self.0.memory(out)
    }

    fn tensors(&self, out: Option<&Bound<'py, PyAny>>) -> PyResult<[Option<Bound<'py, PyAny>>; SLOTS]> {
        Ok(self.1.with(out))
    }

    #[inline]
    fn is_as_raced(&self) -> bool {
        self.0.exact
    }
}

/// Attention over tensors of torch, computed at once: `None` where that is not for this path to do.
#[pyfunction]
#[pyo3(signature = (q, k, v, causal, scale))]
pub(crate) fn attention_direct<'py>(
    q: &Bound<'py, PyAny>,
    k: &Bound<'py, PyAny>,
    v: &Bound<'py, PyAny>,
    causal: bool,
    scale: Option<f64>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = q.py();
    let Some(torch) = Torch::here(py) else { return Ok(None) };
    if !torch.is_direct(py, &[q, k, v])? {
        return Ok(None);
    }
    let (Ok(a), Ok(b), Ok(c)) = (torch.view(q, "q"), torch.view(k, "k"), torch.view(v, "v")) else { return Ok(None) };
    let Ok(request) = Request::of([a, b, c], None, causal, scale) else { return Ok(None) };
    let p = &request.problem;
    // On the host the answer lies as q does, which the general way sees to.
    let plain = request.exact && p.layout == Order::Bhsd;
    if p.h != p.hkv || !(plain || request.q.cuda().is_some()) {
        return Ok(None);
    }
    Ok(direct(py, request.answer(torch, QkvMask { q, k, v, mask: None }))?.flatten())
}

/// Attention over tensors of torch as a new one, in their order or in that of whoever is chosen; `None` where they lie
/// in no order that the choice follows, or have gaps and nothing was chosen yet. All have four dimensions; the mask
/// two.
#[pyfunction]
#[pyo3(signature = (q, k, v, mask, causal, scale))]
pub(crate) fn attention_new<'py>(
    q: &Bound<'py, PyAny>,
    k: &Bound<'py, PyAny>,
    v: &Bound<'py, PyAny>,
    mask: Option<&Bound<'py, PyAny>>,
    causal: bool,
    scale: Option<f64>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let own = QkvMask { q, k, v, mask };
    let torch = Torch::here(q.py()).filter(|t| own.of_torch(t).is_some());
    let torch = torch.ok_or_else(|| PyValueError::new_err("q, k, v or mask: is no tensor of torch"))?;
    request(own, causal, scale)?.answer(torch, own)
}

/// Writes attention over tensors of any library into one more. All have four dimensions; the mask two.
#[pyfunction]
#[pyo3(signature = (q, k, v, mask, causal, scale, out))]
pub(crate) fn attention_into(
    q: &Bound<'_, PyAny>,
    k: &Bound<'_, PyAny>,
    v: &Bound<'_, PyAny>,
    mask: Option<&Bound<'_, PyAny>>,
    causal: bool,
    scale: Option<f64>,
    out: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let (py, own) = (q.py(), QkvMask { q, k, v, mask });
    let mut request = request(own, causal, scale)?;
    let view = View::of(out, "out")?;
    request.write_to(&view)?;
    let torch = Torch::here(py).filter(|t| own.of_torch(t).is_some() && t.is_tensor(out));
    let tensors = || Ok(own.with(Some(out)));
    let tensors = torch.map(|_| &tensors as _);
    call::<Attention, SLOTS>(py, &request.problem, &request.memory(&view)?, tensors, |_| ())
}

fn request(own: QkvMask<'_, '_>, causal: bool, scale: Option<f64>) -> PyResult<Request> {
    let mask = own.mask.map(|m| View::of(m, "mask")).transpose()?;
    let views = [View::of(own.q, "q")?, View::of(own.k, "k")?, View::of(own.v, "v")?];
    Request::of(views, mask, causal, scale)
}

/// The problem of a request, in its text form.
#[pyfunction]
#[pyo3(signature = (q, k, v, mask=None, causal=false, scale=None))]
pub(crate) fn attention_problem(
    q: &Bound<'_, PyAny>,
    k: &Bound<'_, PyAny>,
    v: &Bound<'_, PyAny>,
    mask: Option<&Bound<'_, PyAny>>,
    causal: bool,
    scale: Option<f64>,
) -> PyResult<String> {
    Ok(Attention::text(&request(QkvMask { q, k, v, mask }, causal, scale)?.problem))
}
