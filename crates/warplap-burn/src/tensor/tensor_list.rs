//! Tensors that cross Burn's dispatch together: a list of floats and a list of integers, with what went wrong beside
//! them. One shape for every operation, so that one extension method carries them all.

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{
    Backend, BackendTensor, Dispatch, DispatchAutodiffContext, DispatchTensor, DispatchTensorKind, ExtensionType,
};
use warplap::Error;

/// Tensors of a call, or its outcome.
pub(crate) struct TensorList<B: Backend> {
    /// Floats, in the order the call names them.
    pub(crate) floats: Vec<FloatTensor<B>>,
    /// Integers.
    pub(crate) ints: Vec<IntTensor<B>>,
    /// Why there is no outcome, where there is none.
    pub(crate) failure: Option<Error>,
}

impl<B: Backend> TensorList<B> {
    pub(crate) fn new(floats: Vec<FloatTensor<B>>, ints: Vec<IntTensor<B>>) -> Self {
        TensorList { floats, ints, failure: None }
    }

    pub(crate) fn of(outcome: Result<Self, Error>) -> Self {
        outcome
            .unwrap_or_else(|failure| TensorList { failure: Some(failure), ..TensorList::new(Vec::new(), Vec::new()) })
    }

    pub(crate) fn outcome(self) -> Result<Self, Error> {
        match self.failure {
            Some(failure) => Err(failure),
            None => Ok(self),
        }
    }
}

impl<B: Backend> ExtensionType<B> for TensorList<B> {
    type Target = TensorList<Dispatch>;

    fn map_to_dispatch<F>(self, map_kind: F, autodiff: DispatchAutodiffContext) -> TensorList<Dispatch>
    where
        F: Fn(BackendTensor<B>) -> DispatchTensorKind,
    {
        let wrap = |tensor| DispatchTensor { kind: map_kind(tensor), autodiff };
        TensorList {
            floats: self.floats.into_iter().map(|t| wrap(BackendTensor::Float(t))).collect(),
            ints: self.ints.into_iter().map(|t| wrap(BackendTensor::Int(t))).collect(),
            failure: self.failure,
        }
    }

    fn map_from_dispatch<F>(target: TensorList<Dispatch>, unwrap_kind: F) -> Self
    where
        F: Fn(DispatchTensor) -> BackendTensor<B>,
    {
        TensorList {
            floats: target.floats.into_iter().map(|t| unwrap_kind(t).float()).collect(),
            ints: target.ints.into_iter().map(|t| unwrap_kind(t).int()).collect(),
            failure: target.failure,
        }
    }

    fn routing_tensor(target: &TensorList<Dispatch>) -> Option<&DispatchTensor> {
        target.floats.first().or(target.ints.first())
    }

    fn routing_float_tensor(target: &TensorList<Dispatch>) -> Option<&DispatchTensor> {
        target.floats.first()
    }

    fn autodiff_context(target: &TensorList<Dispatch>) -> DispatchAutodiffContext {
        let all = target.floats.iter().chain(&target.ints);
        all.fold(DispatchAutodiffContext::Disabled, |context, tensor| context.merge(tensor.autodiff))
    }
}
