//! Norms: RMSNorm and LayerNorm of rows, with or without a residual in front, which is added in the same pass. The
//! library has no kernel for their gradients: the backward pass is Burn's own operations, in f32.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, FloatDType, TensorMetadata};
use burn::tensor::{DType, Shape, Tensor};
use warplap::ops::norm::Kind;
use warplap::{Error, Norm, NormProblem};

use crate::adapter::{Manner, Slotted, launch};
use crate::call::{Call, Gradients, Kept, Slope};
use crate::gemm::{column_sums, flat, row_major};
use crate::lies::wrong;
use crate::place::{Place, packed};
use crate::tensors::{calls, expect};

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
    if let Some(found) = residual.as_ref().map(|r| r.dims()).filter(|found| *found != dims) {
        return Err(wrong("residual", format!("is {found:?}, expected {dims:?} as x has")));
    }
    for (name, columns) in [("weight", &options.weight), ("bias", &options.bias)] {
        if let Some(found) = columns.as_ref().map(|c| c.dims()[0]).filter(|found| *found != n) {
            return Err(wrong(name, format!("has {found} elements, expected {n}, the last size of x")));
        }
    }
    let made = NormCall {
        kind: options.kind,
        eps: options.eps,
        residual: residual.is_some(),
        weight: options.weight.is_some(),
        bias: options.bias.is_some(),
    };
    let mut given = vec![x.into_dispatch()];
    given.extend(residual.map(Tensor::into_dispatch));
    given.extend(options.weight.map(Tensor::into_dispatch));
    given.extend(options.bias.map(Tensor::into_dispatch));
    let mut outputs = calls(Call::Norm(made), given)?.into_iter().map(Tensor::<D>::from_dispatch);
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
        let on = floats.first().map(|x| P::lies(x, "x")).transpose()?;
        let Some(on) = on else { return Err(wrong("the arguments", "a norm takes x")) };
        let kind = crate::dtype::float(crate::dtype::burns(on.dtype)?, "x")?;
        let mut floats = floats.into_iter();
        let mut given = Vec::with_capacity(names.len());
        for name in names {
            let Some((name, tensor)) = name.zip(if name.is_some() { floats.next() } else { None }) else {
                given.push(Slotted::Absent);
                continue;
            };
            let found = P::lies(&tensor, name)?.dtype;
            if found != kind {
                return Err(wrong(name, format!("holds {found}, expected {kind} as x has: cast one of them")));
            }
            given.push(Slotted::Tensor(packed::<P>(tensor, name)?));
        }
        let n = on.shape.last().copied().unwrap_or(1).max(1);
        let mut p = NormProblem::new((on.len() / n) as u64, n as u64, kind);
        p.kind = if self.kind == NormKind::Rms { Kind::Rms } else { Kind::Layer };
        (p.residual, p.weight, p.bias) = (self.residual, self.weight, self.bias);
        let eps = self.eps;
        let p = p.with_eps(eps).ok_or_else(|| wrong("eps", format!("is {eps}, expected a number from 1e-20 to 1")))?;
        let out = launch::<P, Norm>(&p, given, &Manner::PROMISED)?;
        Ok(out.into_iter().map(|t| P::seen_as(t, &on.shape, &row_major(&on.shape))).collect())
    }

    pub(crate) fn backward<B: Backend>(
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
        let (shape, own) = (x.shape(), x.dtype());
        let n = shape[shape.num_dims() - 1];
        let rows = shape.num_elements() / n;
        let at = usize::from(!self.residual);
        let weight = self.weight.then(|| B::float_reshape(wide::<B>(kept.inputs[at].clone()), Shape::new([1, n])));
        let (s, grad) = (flat::<B>(wide::<B>(x), rows), flat::<B>(wide::<B>(slope.grad), rows));
        let (centred, root) = self.standing::<B>(s);
        let unit = B::float_mul(centred, root.clone());
        // What reaches the norm itself.
        let reaching = match weight {
            Some(weight) => B::float_mul(grad.clone(), weight),
            None => grad.clone(),
        };
        let along = B::float_mean_dim(B::float_mul(reaching.clone(), unit.clone()), 1);
        let mut inner = B::float_sub(reaching.clone(), B::float_mul(unit.clone(), along));
        if self.kind == NormKind::Layer {
            inner = B::float_sub(inner, B::float_mean_dim(reaching, 1));
        }
        let dx = B::float_reshape(narrow::<B>(B::float_mul(inner, root), own), shape);
        let wanted = |i: usize| slope.wanted.get(i).copied().unwrap_or(false);
        let mut found = vec![wanted(0).then(|| dx.clone())];
        if self.residual {
            found.push(wanted(1).then_some(dx));
        }
        if self.weight {
            let by_column = || column_sums::<B>(B::float_mul(grad.clone(), unit.clone()));
            found.push(wanted(found.len()).then(|| narrow::<B>(by_column(), own)));
        }
        if self.bias {
            found.push(wanted(found.len()).then(|| narrow::<B>(column_sums::<B>(grad.clone()), own)));
        }
        Ok(found)
    }

    /// Rows without their mean, where it is taken away, and one over the root that they are divided by.
    fn standing<B: Backend>(&self, s: FloatTensor<B>) -> (FloatTensor<B>, FloatTensor<B>) {
        let centred = match self.kind {
            NormKind::Rms => s,
            NormKind::Layer => B::float_sub(s.clone(), B::float_mean_dim(s, 1)),
        };
        let square = B::float_mean_dim(B::float_mul(centred.clone(), centred.clone()), 1);
        let root = B::float_recip(B::float_sqrt(B::float_add_scalar(square, self.eps.into())));
        (centred, root)
    }
}

fn wide<B: Backend>(tensor: FloatTensor<B>) -> FloatTensor<B> {
    if tensor.dtype() == DType::F32 { tensor } else { B::float_cast(tensor, FloatDType::F32) }
}

fn narrow<B: Backend>(tensor: FloatTensor<B>, to: DType) -> FloatTensor<B> {
    if to == DType::F32 { tensor } else { B::float_cast(tensor, to.into()) }
}
