//! The gradient of a block-sparse matrix's blocks: those blocks of G·Bᵀ that its indices name.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use warplap::cuda;
use warplap::ops::bsr::BsrProblem;
use warplap::ops::sampled::SampledArgs;
use warplap::{Cpu, Cuda, DType, Layout, Sampled, SampledProblem};

use crate::argument;
use crate::failure::rejected;
use crate::foreign::Described;
use crate::lent::{Buffer, Lent};
use crate::state::state;
use crate::structure::{Frame, Structure};
use crate::tensor::View;
use crate::torch::Torch;

/// Writes the blocks of `g @ b.T` that the indices name into `values`.
#[pyfunction]
pub(crate) fn sampled_into(
    crow: &Bound<'_, PyAny>,
    col: &Bound<'_, PyAny>,
    g: &Bound<'_, PyAny>,
    b: &Bound<'_, PyAny>,
    values: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let py = crow.py();
    let (left, right, out) = (View::of(g, "grad")?, View::of(b, "b")?, View::of(values, "values")?);
    let dtype = argument::float(&left, "grad")?;
    for (view, name, dims) in [(&left, "grad", 2), (&right, "b", 2), (&out, "values", 3)] {
        argument::same(view, name, dtype, "grad")?;
        argument::together(view, name, &left)?;
        argument::dims(view, name, dims)?;
    }
    let ([m, n, ..], [k, ..], [nnz, bs, ..]) = (left.shape, right.shape, out.shape);
    argument::shape(&right, "b", &[k, n])?;
    argument::sizes(&left, "grad")?;
    argument::sizes(&right, "b")?;
    let side = bs.max(0) as u64;
    let frame = Frame { m: m as u64, k: k as u64, bs: side, bc: side };
    let structure = Structure::of(crow, col, frame)?;
    argument::shape(&out, "values", &[structure.problem.nnz as i64, bs, bs])?;
    if !out.is_compact() {
        return Err(argument::strided(&out, "values", "contiguous row-major blocks"));
    }
    let pattern = BsrProblem { n: n as u64, dtype, b: argument::order(&right, "b")?, ..structure.problem };
    let problem = SampledProblem::of(&pattern, argument::order(&left, "grad")?);
    let (p, lengths) = (&problem.pattern, [(m * n) as usize, (k * n) as usize]);
    argument::output(&out, p.values_len(), &[("grad", &left, lengths[0]), ("b", &right, lengths[1])])?;
    if nnz == 0 {
        return Ok(());
    }
    let state = state();
    let Some(on) = &structure.on_gpu else {
        argument::on_host(&left, "grad")?;
        let torch = Torch::here(py).filter(|t| [crow, col, g, b, values].iter().all(|o| t.is_tensor(o)));
        return state.desks().sampled.with(py, &problem, &(), |entry| {
            if let (Some(foreign), Some(_)) = (&entry.foreign, torch) {
                return foreign.call(&(crow, col, g, b, values).into_pyobject(py)?);
            }
            // SAFETY: the caller holds references to the objects behind the views for the time of this call, all were
            // found without gaps, and `output` has seen to it that values shares nothing with them.
            let slices = unsafe { (left.slice(lengths[0]), right.slice(lengths[1]), out.slice_mut(p.values_len())) };
            let (Some(g), Some(b), Some(values)) = slices else { return Err(argument::unaligned("grad, b or values")) };
            let (row_ptr, col_idx) = (&structure.row_ptr[..], &structure.col_idx[..]);
            let (row_ptr, col_idx) = (row_ptr.into(), col_idx.into());
            let args = SampledArgs::<Cpu> { problem: &problem, row_ptr, col_idx, g, b, values };
            py.detach(|| entry.kernel.launch(args, &())).map_err(|e| rejected(&e))
        });
    };
    if left.cuda() != Some(on.ordinal) {
        let found = left.place();
        return Err(PyValueError::new_err(format!("grad: is on {found}, expected cuda:{} like a", on.ordinal)));
    }
    let desks = state.gpu(on.ordinal)?;
    let queue = desks.queue(py);
    structure.launched(on, &queue);
    desks.sampled.with(py, &problem, &queue, |entry| {
        // SAFETY: the indices are validated copies that `structure` holds; the caller holds references to the tensors
        // behind the other addresses, whose shapes were checked.
        let args = unsafe {
            SampledArgs::<Cuda> {
                problem: &problem,
                row_ptr: cuda::View::from_raw(on.row_ptr.address(), DType::I32, p.rows() + 1),
                col_idx: cuda::View::from_raw(on.col_idx.address(), DType::I32, p.nnz as usize),
                g: cuda::View::from_raw(left.address as u64, dtype, lengths[0]),
                b: cuda::View::from_raw(right.address as u64, dtype, lengths[1]),
                values: cuda::ViewMut::from_raw(out.address as u64, dtype, p.values_len()),
            }
        };
        entry.kernel.launch(args, &queue).map_err(|e| rejected(&e))
    })
}

impl Described for Sampled {
    fn buffers<D: Lent>(mut args: SampledArgs<'_, D>) -> Vec<Buffer> {
        let p = &args.problem.pattern;
        let strides = |layout, rows| if layout == Layout::Row { [p.n, 1] } else { [1, rows] };
        vec![
            Buffer::read::<D>(&args.row_ptr, &[p.m / p.bs + 1], &[1]),
            Buffer::read::<D>(&args.col_idx, &[p.nnz], &[1]),
            Buffer::read::<D>(&args.g, &[p.m, p.n], &strides(args.problem.g, p.m)),
            Buffer::read::<D>(&args.b, &[p.k, p.n], &strides(p.b, p.k)),
            Buffer::write::<D>(&mut args.values, &[p.nnz, p.bs, p.bs], &[p.bs * p.bs, p.bs, 1]),
        ]
    }

    fn arguments<'py>(
        _: &SampledProblem,
        py: Python<'py>,
        tensors: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, tensors)
    }
}
