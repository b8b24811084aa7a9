//! A layer with a block-sparse weight on a GPU, called directly: rows come in, rows go out. What kernels see is the
//! weight times the transpose of the input, so the same memory is read the other way.

use pyo3::prelude::*;

use crate::call::direct::direct;
use crate::call::torch::Torch;
use crate::products::bsr::SparseProduct;
use crate::products::sampled;
use crate::tensor::block_structure::{Frame, Structure};
use crate::tensor::view::View;

/// `x @ weight.T + bias`, with n columns, computed at once: `None` where that is not for this path to do. With `turned`
/// the weight is the stored matrix transposed.
#[pyfunction]
pub(crate) fn bsr_linear_direct<'py>(
    crow: &Bound<'py, PyAny>,
    col: &Bound<'py, PyAny>,
    values: &Bound<'py, PyAny>,
    bias: Option<&Bound<'py, PyAny>>,
    n: u64,
    x: &Bound<'py, PyAny>,
    turned: bool,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = crow.py();
    let Some((torch, blocks, passed)) = looked_at(crow, values, x)? else { return Ok(None) };
    let bias = bias.map(|bias| View::of(bias, "bias")).transpose()?;
    let [rows, k] = [passed.shape[0], passed.shape[1]];
    let (bs, bc) = (blocks.shape[1].max(0) as u64, blocks.shape[2].max(0) as u64);
    let (m, k) = if turned { (k as u64, n) } else { (n, k as u64) };
    let made = || {
        let mut structure = Structure::of(crow, col, Frame { m, k, bs, bc })?;
        if turned {
            structure = structure.turned(py)?;
        }
        let (out, view) = torch.empty(x, &passed, &[rows, n as i64])?;
        SparseProduct::of(structure, blocks, passed.turned())?.with_bias(bias)?.run(py, &view.turned(), None)?;
        Ok(out)
    };
    direct(py, made())
}

/// The gradient of the stored blocks of `y = x @ weight.T`, from that of y: `None` where that is not for this path.
#[pyfunction]
pub(crate) fn bsr_blocks_direct<'py>(
    crow: &Bound<'py, PyAny>,
    col: &Bound<'py, PyAny>,
    values: &Bound<'py, PyAny>,
    y: &Bound<'py, PyAny>,
    x: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = crow.py();
    let Some((torch, blocks, passed)) = looked_at(crow, values, x)? else { return Ok(None) };
    let made = || {
        let sizes = &blocks.shape[..3];
        let (out, view) = torch.empty(values, &blocks, sizes)?;
        let left = View::of(y, "grad")?;
        sampled::write(crow, col, (left.turned(), passed.turned(), view), None)?;
        Ok(out)
    };
    if blocks.shape[1] != blocks.shape[2] { Ok(None) } else { direct(py, made()) }
}

type Looked = (&'static Torch, View, View);

/// The memory of the blocks and of the input, where they are plain tensors on a GPU and nobody watches.
fn looked_at(crow: &Bound<'_, PyAny>, values: &Bound<'_, PyAny>, x: &Bound<'_, PyAny>) -> PyResult<Option<Looked>> {
    let Some(torch) = Torch::here(x.py()) else { return Ok(None) };
    if !torch.is_direct(x.py(), &[crow, values, x])? {
        return Ok(None);
    }
    let (Ok(blocks), Ok(passed)) = (torch.view(values, "values"), torch.view(x, "x")) else { return Ok(None) };
    let fits = blocks.ndim == 3 && passed.ndim == 2 && passed.cuda().is_some();
    Ok(fits.then_some((torch, blocks, passed)))
}
