//! Calls: what is to be done with the tensors that cross Burn's dispatch. One line an operation in each of three
//! matches: how it runs on a place, what its backward pass keeps, and what that pass does.

use std::fmt::Debug;
use std::sync::Arc;

use burn::backend::tensor::FloatTensor;
use warplap::Error;

use crate::backends::place::Place;
use crate::extension::Warplap;
use crate::ops::attention::{AttentionCall, AttentionGradCall};
use crate::ops::bsr::{BlocksCall, BsrCall};
use crate::ops::gemm::GemmCall;
use crate::ops::norm::{NormCall, NormGradCall};
use crate::tensor::tensors::Plain;

/// What is to be done.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    /// A dense product, with bias and activation.
    Gemm(GemmCall),
    /// A block-sparse product.
    Bsr(BsrCall),
    /// The gradient of stored blocks.
    Blocks(BlocksCall),
    /// Attention.
    Attention(AttentionCall),
    /// The gradients of attention.
    AttentionGrad(AttentionGradCall),
    /// A norm, with residual.
    Norm(NormCall),
    /// The gradients of a norm.
    NormGrad(NormGradCall),
    /// Any operation of the registry, without gradients.
    Plain(Arc<dyn Plain>),
}

/// Floats of a forward pass that its backward pass needs.
#[derive(Clone, Debug)]
pub(crate) struct Kept<T> {
    pub(crate) inputs: Vec<T>,
    pub(crate) outputs: Vec<T>,
}

/// The gradient of one output, and for which inputs the gradients are wanted.
pub(crate) struct Slope<'s, T> {
    /// Which output it is of.
    pub(crate) output: usize,
    pub(crate) grad: T,
    pub(crate) wanted: &'s [bool],
}

/// Gradients by input; none where none is wanted, or there is none.
pub(crate) type Gradients<B> = Result<Vec<Option<FloatTensor<B>>>, Error>;

impl Call {
    /// Runs it; gives its outputs in order.
    pub(crate) fn run<P: Place>(&self, floats: Vec<P::Tensor>, ints: Vec<P::Tensor>) -> Result<Vec<P::Tensor>, Error> {
        match self {
            Call::Gemm(call) => call.run::<P>(floats),
            Call::Bsr(call) => call.run::<P>(floats),
            Call::Blocks(call) => call.run::<P>(floats),
            Call::Attention(call) => call.run::<P>(floats),
            Call::AttentionGrad(call) => call.run::<P>(floats),
            Call::Norm(call) => call.run::<P>(floats),
            Call::NormGrad(call) => call.run::<P>(floats),
            Call::Plain(call) => P::plain(&**call, floats, ints),
        }
    }

    /// The same call where gradients may be wanted: it may give more outputs, which the backward pass keeps.
    pub(crate) fn tracked(self) -> Self {
        if let Call::Attention(call) = self { Call::Attention(call.tracked()) } else { self }
    }

    /// How many of the outputs its caller sees, of those there are.
    pub(crate) fn seen(&self, outputs: usize) -> usize {
        if let Call::Attention(_) = self { 1 } else { outputs }
    }

    /// Whether the backward pass needs the outputs. What it holds, Burn cannot overwrite in place.
    pub(crate) fn keeps_outputs(&self) -> bool {
        match self {
            Call::Gemm(call) => call.keeps_outputs(),
            Call::Attention(_) => true,
            Call::Norm(call) => call.keeps_outputs(),
            Call::Bsr(_) | Call::Blocks(_) | Call::AttentionGrad(_) | Call::NormGrad(_) | Call::Plain(_) => false,
        }
    }

    /// The inputs that the backward pass needs.
    pub(crate) fn kept<T>(&self, inputs: Vec<T>) -> Vec<T> {
        if let Call::Norm(call) = self { call.kept(inputs) } else { inputs }
    }

    /// Whether it has gradients.
    pub(crate) fn has_gradients(&self) -> bool {
        !matches!(self, Call::Blocks(_) | Call::AttentionGrad(_) | Call::NormGrad(_) | Call::Plain(_))
    }

    /// The backward pass.
    pub(crate) fn backward<B: Warplap>(
        &self,
        kept: Kept<FloatTensor<B>>,
        slope: Slope<'_, FloatTensor<B>>,
    ) -> Gradients<B> {
        match self {
            Call::Gemm(call) => call.backward::<B>(kept, slope),
            Call::Bsr(call) => call.backward::<B>(kept, slope),
            Call::Attention(call) => call.backward::<B>(kept, slope),
            Call::Norm(call) => call.backward::<B>(kept, slope),
            Call::Blocks(_) | Call::AttentionGrad(_) | Call::NormGrad(_) | Call::Plain(_) => Ok(Vec::new()),
        }
    }
}
