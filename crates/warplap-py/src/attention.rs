//! `attention`: queries, keys and values of any library come in, what they attend to goes out.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use warplap::core::op::Op;
use warplap::ops::attention::{AttentionArgs, Mask, Order, Strides};
use warplap::{Attention, AttentionProblem, Cpu};

use crate::argument;
use crate::failure::rejected;
use crate::foreign::Described;
use crate::lent::{Buffer, Lent};
use crate::state::{mode_number, state};
use crate::tensor::View;
use crate::torch::Torch;
use crate::ways::Call;

/// A request and its memory.
struct Request {
    problem: AttentionProblem,
    q: View,
    k: View,
    v: View,
    mask: Option<View>,
}

/// Whether a tensor lies as the problem says.
fn lies(view: &View, s: Strides) -> bool {
    let expected = [s.batch, s.head, s.row, 1];
    (0..4).all(|d| view.shape[d] == 1 || view.strides[d] == expected[d] as i64)
}

impl Request {
    #[inline]
    fn of(q: View, k: View, v: View, mask: Option<View>, causal: bool, scale: Option<f64>) -> PyResult<Request> {
        let dtype = argument::float(&q, "q")?;
        argument::on_host(&q, "q")?;
        for (view, name) in [(&q, "q"), (&k, "k"), (&v, "v")] {
            argument::same(view, name, dtype, "q")?;
            argument::on_host(view, name)?;
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
            argument::on_host(mask, "mask")?;
            argument::shape(mask, "mask", &[sq, sk])?;
            if !mask.is_compact() {
                return Err(argument::strided(mask, "mask", "contiguous rows"));
            }
            p.mask = Mask::Add;
        }
        let all = |p: &AttentionProblem| lies(&q, p.q_strides()) && lies(&k, p.k_strides()) && lies(&v, p.v_strides());
        if !all(&p) {
            p.layout = Order::Bshd;
            if !all(&p) {
                return Err(argument::strided(&q, "q, k or v", "all in order bhsd, or all in order bshd"));
            }
        }
        Ok(Request { problem: p, q, k, v, mask })
    }

    #[inline]
    fn write_to(&mut self, out: &View) -> PyResult<()> {
        let p = &self.problem;
        argument::same(out, "out", p.dtype, "q")?;
        argument::on_host(out, "out")?;
        argument::shape(out, "out", &[p.b as i64, p.h as i64, p.sq as i64, p.dv as i64])?;
        if !lies(out, p.o_strides()) {
            // With one head or one query the inputs lie in both orders.
            let mut other = *p;
            other.layout = if p.layout == Order::Bhsd { Order::Bshd } else { Order::Bhsd };
            let inputs = lies(&self.q, other.q_strides()) && lies(&self.k, other.k_strides());
            if !(lies(out, other.o_strides()) && inputs && lies(&self.v, other.v_strides())) {
                return Err(argument::strided(out, "out", "the order of q"));
            }
            self.problem = other;
        }
        let p = &self.problem;
        let mut inputs = vec![("q", &self.q, p.q_len()), ("k", &self.k, p.k_len()), ("v", &self.v, p.v_len())];
        inputs.extend(self.mask.as_ref().map(|m| ("mask", m, p.mask_len())));
        argument::output(out, p.o_len(), &inputs)
    }

    #[inline]
    fn run(&self, py: Python<'_>, out: &View, objects: Option<&Objects<'_, '_>>) -> PyResult<()> {
        let p = &self.problem;
        state().desks().attention.with(py, p, &(), |entry| {
            if let (Some(foreign), Some(o)) = (&entry.foreign, objects) {
                let rest = (p.causal, f64::from(p.scale()), p.h != p.hkv, o.out);
                let args = (o.q, o.k, o.v, o.mask, rest.0, rest.1, rest.2, rest.3);
                return foreign.call(&args.into_pyobject(py)?);
            }
            // SAFETY: the caller holds references to the objects behind the views for the time of this call, their
            // order and shapes were checked, and `output` has seen to it that out shares nothing with them.
            let slices = unsafe {
                let mask = self.mask.as_ref().map(|m| m.slice(p.mask_len()));
                (
                    self.q.slice(p.q_len()),
                    self.k.slice(p.k_len()),
                    self.v.slice(p.v_len()),
                    mask,
                    out.slice_mut(p.o_len()),
                )
            };
            let (Some(q), Some(k), Some(v), mask @ (None | Some(Some(_))), Some(out)) = slices else {
                return Err(argument::unaligned("q, k, v, mask or out"));
            };
            let args = AttentionArgs::<Cpu> { problem: p, q, k, v, mask: mask.flatten(), out };
            let kernel = &*entry.kernel;
            let done = if entry.brief { kernel.launch(args, &()) } else { py.detach(|| kernel.launch(args, &())) };
            done.map_err(|e| rejected(&e))
        })
    }
}

/// The caller's own tensors.
struct Objects<'a, 'py> {
    q: &'a Bound<'py, PyAny>,
    k: &'a Bound<'py, PyAny>,
    v: &'a Bound<'py, PyAny>,
    mask: Option<&'a Bound<'py, PyAny>>,
    out: &'a Bound<'py, PyAny>,
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
    if a.cuda().is_some() {
        // On a GPU the choice is among torch's own; the general way makes it, and says so to `attention_way`.
        let call = Call::of(mode_number(), [&a, &b, &c], causal, scale);
        let way = call.and_then(|call| state().ways.find(py, &call));
        return way.map(|way| way.bind(py).call1((q, k, v, py.None(), causal, scale))).transpose();
    }
    let Ok(mut request) = Request::of(a, b, c, None, causal, scale) else { return Ok(None) };
    let p = &request.problem;
    if p.layout != Order::Bhsd || p.h != p.hkv {
        return Ok(None);
    }
    let out = torch.empty(q, &[p.b as i64, p.h as i64, p.sq as i64, p.dv as i64])?;
    let view = torch.view(&out, "out")?;
    if request.write_to(&view).is_err() {
        return Ok(None);
    }
    request.run(py, &view, Some(&Objects { q, k, v, mask: None, out: &out }))?;
    Ok(Some(out))
}

/// Remembers who answers calls with tensors like these on a GPU: `way(q, k, v, None, causal, scale)`.
#[pyfunction]
#[pyo3(signature = (q, k, v, causal, scale, way))]
pub(crate) fn attention_way(
    q: &Bound<'_, PyAny>,
    k: &Bound<'_, PyAny>,
    v: &Bound<'_, PyAny>,
    causal: bool,
    scale: Option<f64>,
    way: Py<PyAny>,
) -> PyResult<()> {
    let views = (View::of(q, "q")?, View::of(k, "k")?, View::of(v, "v")?);
    if let Some(call) = Call::of(mode_number(), [&views.0, &views.1, &views.2], causal, scale) {
        state().ways.put(call, way);
    }
    Ok(())
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
    let py = q.py();
    let mut request = request(q, k, v, mask, causal, scale)?;
    let view = View::of(out, "out")?;
    request.write_to(&view)?;
    let torch = Torch::here(py).filter(|t| [q, k, v, out].iter().all(|o| t.is_tensor(o)));
    let objects = Objects { q, k, v, mask, out };
    request.run(py, &view, torch.map(|_| &objects))
}

fn request(
    q: &Bound<'_, PyAny>,
    k: &Bound<'_, PyAny>,
    v: &Bound<'_, PyAny>,
    mask: Option<&Bound<'_, PyAny>>,
    causal: bool,
    scale: Option<f64>,
) -> PyResult<Request> {
    let mask = mask.map(|m| View::of(m, "mask")).transpose()?;
    Request::of(View::of(q, "q")?, View::of(k, "k")?, View::of(v, "v")?, mask, causal, scale)
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
    Ok(Attention::text(&request(q, k, v, mask, causal, scale)?.problem))
}

impl Described for Attention {
    fn buffers<D: Lent>(mut args: AttentionArgs<'_, D>) -> Vec<Buffer> {
        let p = args.problem;
        let strides = |s: Strides| [s.batch as u64, s.head as u64, s.row as u64, 1];
        let mut buffers = vec![
            Buffer::read::<D>(&args.q, &[p.b, p.h, p.sq, p.d], &strides(p.q_strides())),
            Buffer::read::<D>(&args.k, &[p.b, p.hkv, p.sk, p.d], &strides(p.k_strides())),
            Buffer::read::<D>(&args.v, &[p.b, p.hkv, p.sk, p.dv], &strides(p.v_strides())),
        ];
        buffers.extend(args.mask.map(|m| Buffer::read::<D>(&m, &[p.sq, p.sk], &[p.sk, 1])));
        buffers.push(Buffer::write::<D>(&mut args.out, &[p.b, p.h, p.sq, p.dv], &strides(p.o_strides())));
        buffers
    }

    fn arguments<'py>(
        p: &AttentionProblem,
        py: Python<'py>,
        mut tensors: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let out = tensors.pop();
        let mut tensors = tensors.into_iter();
        let (q, k, v, mask) = (tensors.next(), tensors.next(), tensors.next(), tensors.next());
        (q, k, v, mask, p.causal, f64::from(p.scale()), p.h != p.hkv, out).into_pyobject(py)
    }
}
