//! Norms: RMSNorm and LayerNorm of rows, with or without a residual in front, which is added in the same pass.

use burn::backend::tensor::FloatTensor;
use burn::tensor::Tensor;
use warplap::ops::norm::Kind;
use warplap::{Error, Norm, NormGrad, NormGradProblem, NormProblem};

use crate::backends::place::{Place, packed};
use crate::call::{Call, Gradients, Kept, Slope};
use crate::extension::Warplap;
use crate::ops::gemm::row_major;
use crate::tensor::adapter::{Manner, Slotted, launch};
use crate::tensor::tensor_layout::{TensorLayout, wrong};
use crate::tensor::tensor_list::TensorList;
use crate::tensor::tensors::{calls, expect};

/// What a row is divided by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NormKind {
    /// The root of its mean square.
    #[default]
    Rms,
    /// Its standard deviation, after its mean was taken away.
    Layer,
}

/// What a norm does besides.
#[derive(Clone, Debug)]
pub struct NormOptions {
    /// What a row is divided by.
    pub kind: NormKind,
    /// What each column is multiplied with, `[n]`.
    pub weight: Option<Tensor<1>>,
    /// What is added to each column then, `[n]`.
    pub bias: Option<Tensor<1>>,
    /// What is added under the root.
    pub eps: f32,
}

impl Default for NormOptions {
    fn default() -> Self {
        NormOptions { kind: NormKind::Rms, weight: None, bias: None, eps: 1e-5 }
    }
}

/// The norm of each row (the last dimension) of x.
///
/// # Panics
/// Where [`try_norm`] says what is wrong.
pub fn norm<const D: usize>(x: Tensor<D>, options: NormOptions) -> Tensor<D> {
    expect("norm", try_norm(x, options))
}

/// As [`norm`]; an error names the argument that does not fit.
pub fn try_norm<const D: usize>(x: Tensor<D>, options: NormOptions) -> Result<Tensor<D>, Error> {
    Ok(normed(x, None, options)?.0)
}

/// The norm of each row of `x + residual`, and that sum, which goes on to the next layer: both from one pass.
///
/// # Panics
/// Where [`try_norm_residual`] says what is wrong.
pub fn norm_residual<const D: usize>(
    x: Tensor<D>,
    residual: Tensor<D>,
    options: NormOptions,
) -> (Tensor<D>, Tensor<D>) {
    expect("norm_residual", try_norm_residual(x, residual, options))
}

/// As [`norm_residual`]; an error names the argument that does not fit.
pub fn try_norm_residual<const D: usize>(
    x: Tensor<D>,
    residual: Tensor<D>,
    options: NormOptions,
) -> Result<(Tensor<D>, Tensor<D>), Error> {
    let (y, sum) = normed(x, Some(residual), options)?;
    Ok((y, sum.ok_or_else(|| wrong("residual", "was lost"))?))
}

fn normed<const D: usize>(
    x: Tensor<D>,
    residual: Option<Tensor<D>>,
    options: NormOptions,
) -> Result<(Tensor<D>, Option<Tensor<D>>), Error> {
    let dims = x.dims();
    let n = dims[D - 1];
    if dims.contains(&0) {
        return Err(wrong("x", format!("is {dims:?}, expected no size of 0")));
    }
    if let Some(got) = residual.as_ref().map(|r| r.dims()).filter(|got| *got != dims) {
        return Err(wrong("residual", format!("is {got:?}, expected {dims:?} as x has")));
    }
    for (name, columns) in [("weight", &options.weight), ("bias", &options.bias)] {
        if let Some(got) = columns.as_ref().map(|c| c.dims()[0]).filter(|got| *got != n) {
            return Err(wrong(name, format!("has {got} elements, expected {n}, the last size of x")));
        }
    }
    let made = NormCall {
        kind: options.kind,
        eps: options.eps,
        residual: residual.is_some(),
        weight: options.weight.is_some(),
        bias: options.bias.is_some(),
    };
    let mut tensor_list = vec![x.into_dispatch()];
    tensor_list.extend(residual.map(Tensor::into_dispatch));
    tensor_list.extend(options.weight.map(Tensor::into_dispatch));
    tensor_list.extend(options.bias.map(Tensor::into_dispatch));
    let mut outputs = calls(Call::Norm(made), tensor_list)?.into_iter().map(Tensor::<D>::from_dispatch);
    let y = outputs.next().ok_or_else(|| wrong("the outputs", "there are none, expected one"))?;
    Ok((y, outputs.next()))
}

/// A norm of x, then of a residual, a weight and a bias where there are some.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NormCall {
    kind: NormKind,
    eps: f32,
    residual: bool,
    weight: bool,
    bias: bool,
}

impl NormCall {
    /// The sum is kept, and then neither of the two that it was made of.
    pub(crate) fn keeps_outputs(&self) -> bool {
        self.residual
    }

    pub(crate) fn kept<T>(&self, mut inputs: Vec<T>) -> Vec<T> {
        inputs.drain(..if self.residual { 2 } else { 0 });
        inputs
    }

    pub(crate) fn run<P: Place>(&self, floats: Vec<P::Tensor>) -> Result<Vec<P::Tensor>, Error> {
        let names = [
            Some("x"),
            self.residual.then_some("residual"),
            self.weight.then_some("weight"),
            self.bias.then_some("bias"),
        ];
        let on = floats.first().map(|x| P::layout_of(x, "x")).transpose()?;
        let Some(on) = on else { return Err(wrong("the arguments", "a norm takes x")) };
        let kind = crate::tensor::dtype::float(crate::tensor::dtype::burns(on.dtype)?, "x")?;
        let mut floats = floats.into_iter();
        let mut tensor_list = Vec::with_capacity(names.len());
        for name in names {
            let Some((name, tensor)) = name.zip(if name.is_some() { floats.next() } else { None }) else {
                tensor_list.push(Slotted::Absent);
                continue;
            };
            let got = P::layout_of(&tensor, name)?.dtype;
            if got != kind {
                return Err(wrong(name, format!("holds {got}, expected {kind} as x has: cast one of them")));
            }
            tensor_list.push(Slotted::Tensor(packed::<P>(tensor, name)?));
        }
        let mut p = self.problem(&on)?;
        p.residual = self.residual;
        let out = launch::<P, Norm>(&p, tensor_list, &Manner::PROMISED)?;
        Ok(out.into_iter().map(|t| P::seen_as(t, &on.shape, &row_major(&on.shape))).collect())
    }

    pub(crate) fn backward<B: Warplap>(
        &self,
        kept: Kept<FloatTensor<B>>,
        slope: Slope<'_, FloatTensor<B>>,
    ) -> Gradients<B> {
        let x = if self.residual { kept.outputs.into_iter().nth(1) } else { kept.inputs.first().cloned() };
        let Some(x) = x else { return Ok(Vec::new()) };
        if slope.output == 1 {
            // The sum is as steep in one as in the other.
            let both = slope.wanted.iter().take(2).map(|wanted| wanted.then(|| slope.grad.clone()));
            return Ok(both.collect());
        }
        let mut tensor_list = vec![x, slope.grad];
        tensor_list.extend(kept.inputs.get(usize::from(!self.residual)).cloned().filter(|_| self.weight));
        let grads =
            B::warplap(TensorList::new(tensor_list, Vec::new()), Call::NormGrad(NormGradCall(*self))).outcome()?;
        let mut grads = grads.floats.into_iter();
        // By x and by the residual it is the same; then by weight and bias, where they are.
        let of_sum = grads.next();
        let residual = if self.residual { vec![of_sum.clone()] } else { Vec::new() };
        Ok([of_sum].into_iter().chain(residual).chain(grads.map(Some)).collect())
    }

    /// The facts of the norm of rows that lie so.
    fn problem(&self, on: &TensorLayout) -> Result<NormProblem, Error> {
        let kind = crate::tensor::dtype::float(crate::tensor::dtype::burns(on.dtype)?, "x")?;
        let n = on.shape.last().copied().unwrap_or(1).max(1);
        let mut p = NormProblem::new((on.len() / n) as u64, n as u64, kind);
        p.kind = if self.kind == NormKind::Rms { Kind::Rms } else { Kind::Layer };
        (p.weight, p.bias) = (self.weight, self.bias);
        let eps = self.eps;
        p.with_eps(eps).ok_or_else(|| wrong("eps", format!("is {eps}, expected a number from 1e-20 to 1")))
    }
}

/// The gradients of a norm: from what was normalised, the gradient of the norm, and the weight where there is one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NormGradCall(NormCall);

impl NormGradCall {
    pub(crate) fn run<P: Place>(&self, floats: Vec<P::Tensor>) -> Result<Vec<P::Tensor>, Error> {
        let on = floats.first().map(|s| P::layout_of(s, "x")).transpose()?;
        let Some(on) = on else {
            return Err(wrong("the arguments", "the gradients of a norm take what was normalised"));
        };
        let p = NormGradProblem { norm: self.0.problem(&on)?, total: false };
        let tensor_list = floats.into_iter().zip(["x", "grad", "weight"]);
        let tensor_list = tensor_list.map(|(tensor, name)| packed::<P>(tensor, name).map(Slotted::Tensor));
        let tensor_list = tensor_list.collect::<Result<Vec<Slotted<P::Tensor>>, Error>>()?;
        let out = launch::<P, NormGrad>(&p, tensor_list, &Manner::PROMISED)?;
        let shape = |i: usize| if i == 0 { &on.shape[..] } else { &on.shape[on.shape.len() - 1..] };
        Ok(out.into_iter().enumerate().map(|(i, t)| P::seen_as(t, shape(i), &row_major(shape(i)))).collect())
    }
}
