//! Dense products: `matmul`, and `linear` with bias and activation. Matrices that are row- or column-major, with or
//! without padding, are read as they lie; so the transposes that gradients multiply with cost nothing.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::{Shape, Tensor};
use warplap::{Error, Gemm, GemmProblem, Layout};

use crate::backends::place::{Place, copied};
use crate::call::{Call, Gradients, Kept, Slope};
use crate::extension::Warplap;
use crate::ops::activation::Activation;
use crate::tensor::adapter::{Manner, Slotted, launch};
use crate::tensor::dtype;
use crate::tensor::tensor_layout::{Matrix, TensorLayout, wrong};
use crate::tensor::tensor_list::TensorList;
use crate::tensor::tensors::{call, expect};

/// A dense product of A `[.., m, k]` and B, which has as many matrices, or is one matrix for all.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GemmCall {
    pub(crate) bias: bool,
    pub(crate) act: Activation,
}

/// `a · b`: the product of the last two dimensions, for all others, as [`Tensor::matmul`] has it.
///
/// # Panics
/// Where [`try_matmul`] says what is wrong.
pub fn matmul<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> Tensor<D> {
    expect("matmul", try_matmul(a, b))
}

/// As [`matmul`]; an error names the argument that does not fit.
pub fn try_matmul<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> Result<Tensor<D>, Error> {
    if D < 2 {
        return Err(wrong("a", format!("has {D} dimensions, expected 2 or more")));
    }
    let (left, right) = (a.dims(), b.dims());
    if left[D - 1] != right[D - 2] {
        let (k, rows) = (left[D - 1], right[D - 2]);
        return Err(wrong("b", format!("has {rows} rows, expected {k}: a is {left:?}, b is {right:?}")));
    }
    if left.contains(&0) || right.contains(&0) {
        return Ok(a.matmul(b));
    }
    let fits = |i: usize| left[i] == right[i] || left[i] == 1 || right[i] == 1;
    if let Some(i) = (0..D - 2).find(|i| !fits(*i)) {
        return Err(wrong("b", format!("has size {} in dimension {i}, expected {} or 1", right[i], left[i])));
    }
    let shared = right[..D - 2].iter().all(|n| *n == 1);
    if shared {
        // One matrix for all: a batch is only more rows.
        let b = b.reshape([right[D - 2], right[D - 1]]);
        return call(GemmCall::default().into(), vec![a.into_dispatch(), b.into_dispatch()]).map(Tensor::from_dispatch);
    }
    let mut batch = [0; D];
    (0..D - 2).for_each(|i| batch[i] = left[i].max(right[i]));
    let of = |tensor: Tensor<D>, dims: [usize; D]| {
        let mut whole = batch;
        (whole[D - 2], whole[D - 1]) = (dims[D - 2], dims[D - 1]);
        if whole == dims { tensor } else { tensor.expand(whole) }
    };
    let (a, b) = (of(a, left), of(b, right));
    call(GemmCall::default().into(), vec![a.into_dispatch(), b.into_dispatch()]).map(Tensor::from_dispatch)
}

/// `activation(x · weight + bias)`, with x `[.., k]`, weight `[k, n]` (as [`Linear`](burn::nn::Linear) has it) and bias
/// `[n]`, in one kernel.
///
/// # Panics
/// Where [`try_linear`] says what is wrong.
pub fn linear<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    activation: Activation,
) -> Tensor<D> {
    expect("linear", try_linear(x, weight, bias, activation))
}

/// As [`linear`]; an error names the argument that does not fit.
pub fn try_linear<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    activation: Activation,
) -> Result<Tensor<D>, Error> {
    let (dims, [k, n]) = (x.dims(), weight.dims());
    if dims[D - 1] != k {
        return Err(wrong("x", format!("has {} columns, expected {k}, the rows of weight", dims[D - 1])));
    }
    if let Some(got) = bias.as_ref().map(|b| b.dims()[0]).filter(|got| *got != n) {
        return Err(wrong("bias", format!("has {got} elements, expected {n}, the columns of weight")));
    }
    if dims.contains(&0) || n == 0 {
        return Err(wrong("x", format!("is {dims:?}, expected no size of 0")));
    }
    if D == 1 {
        let y = try_linear(x.reshape([1, k]), weight, bias, activation)?;
        let mut flat = [0; D];
        flat[0] = n;
        return Ok(y.reshape(flat));
    }
    let product = GemmCall { bias: bias.is_some(), act: activation };
    let mut tensor_list = vec![x.into_dispatch(), weight.into_dispatch()];
    tensor_list.extend(bias.map(Tensor::into_dispatch));
    call(product.into(), tensor_list).map(Tensor::from_dispatch)
}

impl From<GemmCall> for Call {
    fn from(call: GemmCall) -> Self {
        Call::Gemm(call)
    }
}

impl GemmCall {
    pub(crate) fn keeps_outputs(&self) -> bool {
        self.act == Activation::Relu
    }

    pub(crate) fn run<P: Place>(&self, floats: Vec<P::Tensor>) -> Result<Vec<P::Tensor>, Error> {
        let mut floats = floats.into_iter();
        let (Some(a), Some(b)) = (floats.next(), floats.next()) else {
            return Err(wrong("the arguments", "a product takes two tensors"));
        };
        let bias = floats.next().map(|bias| crate::backends::place::packed::<P>(bias, "bias")).transpose()?;
        let shape = P::layout_of(&a, "a")?.shape;
        let ((a, on_a, align_a), (b, on_b, align_b)) = (matrices::<P>(a, "a")?, matrices::<P>(b, "b")?);
        let shared = on_b.batch == 1 && on_a.batch > 1;
        // The matrices of a batch follow each other: with one B for all they are the rows of one.
        let (a, on_a) = match shared {
            true if on_a.order == Layout::Row => (a, Matrix { batch: 1, rows: on_a.rows * on_a.batch, ..on_a }),
            true => {
                let a = copied::<P>(a);
                (a, Matrix { batch: 1, rows: on_a.rows * on_a.batch, order: Layout::Row, ld: on_a.columns, ..on_a })
            }
            false => (a, on_a),
        };
        let (kind, other) = (P::layout_of(&a, "a")?.dtype, P::layout_of(&b, "b")?.dtype);
        if kind != other {
            return Err(wrong("b", format!("holds {other}, expected {kind} as a has: cast one of them")));
        }
        let mut p = GemmProblem::new(on_a.rows, on_b.columns, on_a.columns, kind)
            .with_layouts(on_a.order, on_b.order)
            .with_batch(on_a.batch)
            .with_epilogue(self.bias, self.act.ours());
        (p.lda, p.ldb) = (on_a.ld, on_b.ld);
        p.align = align_a.min(align_b);
        if let Some(bias) = &bias {
            p.align = p.align.min(P::layout_of(bias, "bias")?.align);
        }
        let left = match shared {
            true => P::seen_as(a.clone(), &[p.m as usize, p.k as usize], &[p.lda as isize, 1]),
            false => a.clone(),
        };
        let (right, added) = (b.clone(), bias.clone());
        let burns = || vec![P::product(left.clone(), right.clone(), added.clone(), self.act)];
        let manner = Manner { promised: true, burns_own: Some(&burns) };
        let tensor_list = vec![
            Slotted::Tensor(a),
            Slotted::Tensor(b),
            Slotted::Absent,
            bias.into(),
            Slotted::Absent,
            Slotted::Absent,
        ];
        let out = launch::<P, Gemm>(&p, tensor_list, &manner)?;
        let (dims, mut shape) = (shape.len(), shape);
        shape[dims - 1] = p.n as usize;
        let strides = row_major(&shape);
        Ok(out.into_iter().map(|c| P::seen_as(c, &shape, &strides)).collect())
    }

    pub(crate) fn backward<B: Warplap>(
        &self,
        kept: Kept<FloatTensor<B>>,
        slope: Slope<'_, FloatTensor<B>>,
    ) -> Gradients<B> {
        let mut inputs = kept.inputs.into_iter();
        let (Some(a), Some(b)) = (inputs.next(), inputs.next()) else { return Ok(Vec::new()) };
        let product = |a: FloatTensor<B>, b: FloatTensor<B>| one::<B>(GemmCall::default(), vec![a, b]);
        let grad = match self.act {
            Activation::None => slope.grad,
            Activation::Relu => match kept.outputs.into_iter().next() {
                Some(output) => self.act.slope::<B>(output, slope.grad),
                None => slope.grad,
            },
            // What was activated is computed once more rather than kept.
            act => {
                let plain = GemmCall { act: Activation::None, ..*self };
                let tensor_list = [a.clone(), b.clone()].into_iter().chain(inputs.next());
                act.slope::<B>(one::<B>(plain, tensor_list.collect())?, slope.grad)
            }
        };
        let (on_a, on_b) = (a.shape(), b.shape());
        let rows = |of: &Shape| of.num_elements() / of[of.num_dims() - 1];
        let shared = on_b.num_dims() == 2 && on_a.num_dims() > 2;
        let mut got = vec![None, None, None];
        if slope.wanted[0] {
            got[0] = Some(product(grad.clone(), turned::<B>(b))?);
        }
        if slope.wanted[1] {
            let (a, g) = match shared {
                true => (flat::<B>(a, rows(&on_a)), flat::<B>(grad.clone(), rows(&on_a))),
                false => (a, grad.clone()),
            };
            got[1] = Some(product(turned::<B>(a), g)?);
        }
        if self.bias && slope.wanted[2] {
            got[2] = Some(column_sums::<B>(grad));
        }
        Ok(got)
    }
}

/// A tensor as matrices that kernels read, itself where that goes, and the alignment of its address.
fn matrices<P: Place>(tensor: P::Tensor, argument: &str) -> Result<(P::Tensor, Matrix, u64), Error> {
    let tensor_layout = P::layout_of(&tensor, argument)?;
    dtype::float(dtype::burns(tensor_layout.dtype)?, argument)?;
    if let Some(got) = tensor_layout.matrix() {
        return Ok((tensor, got, tensor_layout.align));
    }
    let tensor = copied::<P>(tensor);
    let tensor_layout: TensorLayout = P::layout_of(&tensor, argument)?;
    let got = tensor_layout
        .matrix()
        .ok_or_else(|| wrong(argument, format!("lies as {tensor_layout:?}, expected matrices")))?;
    Ok((tensor, got, tensor_layout.align))
}

/// The only output of a call on a backend's own tensors.
pub(crate) fn one<B: Warplap>(
    call: impl Into<Call>,
    tensor_list: Vec<FloatTensor<B>>,
) -> Result<FloatTensor<B>, Error> {
    let outcome = B::warplap(TensorList::new(tensor_list, Vec::new()), call.into()).outcome()?;
    outcome.floats.into_iter().next().ok_or_else(|| wrong("the outputs", "there are none, expected one"))
}

/// The last two dimensions swapped: no copy on the backends there are.
pub(crate) fn turned<B: Backend>(tensor: FloatTensor<B>) -> FloatTensor<B> {
    let dims = tensor.rank();
    B::float_swap_dims(tensor, dims - 2, dims - 1)
}

/// All but the last dimension as one.
pub(crate) fn flat<B: Backend>(tensor: FloatTensor<B>, rows: usize) -> FloatTensor<B> {
    let shape = tensor.shape();
    let columns = shape[shape.num_dims() - 1];
    B::float_reshape(tensor, Shape::new([rows, columns]))
}

/// The sums over all but the last dimension.
pub(crate) fn column_sums<B: Backend>(tensor: FloatTensor<B>) -> FloatTensor<B> {
    let last = tensor.rank() - 1;
    let columns = tensor.shape()[last];
    let sums = (0..last).fold(tensor, |sums, dimension| B::float_sum_dim(sums, dimension));
    B::float_reshape(sums, Shape::new([columns]))
}

/// Strides of elements that follow each other in the order of the indices.
pub(crate) fn row_major(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1isize; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i] as isize;
    }
    strides
}
