//! The gradient of a block-sparse matrix's blocks: those blocks of G·Bᵀ that its indices name.

use pyo3::prelude::*;
use warplap::ops::bsr::BsrProblem;
use warplap::{Sampled, SampledProblem};

use crate::call::direct::call;
use crate::call::torch::Torch;
use crate::tensor::argument::{self, CallArgument};
use crate::tensor::block_structure::{Frame, Structure};
use crate::tensor::view::View;

/// Slots of a sampled product.
const SLOTS: usize = 5;

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
    let views = (View::of(g, "grad")?, View::of(b, "b")?, View::of(values, "values")?);
    let torch = Torch::here(py).filter(|t| t.are_tensors(&[crow, col, g, b, values]));
    let own = [g, b, values].map(Bound::clone);
    write(crow, col, views, torch.map(|_| own))
}

/// The same for memory; `own` are the caller's tensors over it, where they are torch's.
pub(crate) fn write<'py>(
    crow: &Bound<'py, PyAny>,
    col: &Bound<'py, PyAny>,
    (left, right, out): (View, View, View),
    own: Option<[Bound<'py, PyAny>; 3]>,
) -> PyResult<()> {
    let py = crow.py();
    let dtype = argument::floats(&[("grad", &left), ("b", &right), ("values", &out)])?;
    for (view, name, dims) in [(&left, "grad", 2), (&right, "b", 2), (&out, "values", 3)] {
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
    argument::compact(&out, "values", "contiguous row-major blocks")?;
    let pattern = BsrProblem { n: n as u64, dtype, b: argument::order(&right, "b")?, ..structure.problem };
    let problem = SampledProblem::of(&pattern, argument::order(&left, "grad")?);
    if nnz == 0 {
        return Ok(());
    }
    let known = &structure;
    let [rows, columns] = structure.call_arguments();
    let (left, right) = (CallArgument::read("grad", &left), CallArgument::read("b", &right));
    let memory = argument::checked([rows, columns, left, right, CallArgument::write("values", &out)])?;
    let tensors = own.map(|[g, b, values]| {
        move || {
            let [rows, columns] = known.tensors(crow, Some(col))?;
            Ok([rows, columns, Some(g.clone()), Some(b.clone()), Some(values.clone())])
        }
    });
    let own = tensors.as_ref().map(|t| t as _);
    call::<Sampled, SLOTS>(py, &problem, &memory, own, |queue| structure.launched(queue))
}
