//! A place: one of Burn's backends as kernels see it. Its tensors come in; memory that kernels read and write goes out.

use std::fmt::Debug;
use std::sync::Arc;

use burn::backend::ops::AttentionModuleOptions;
use warplap::core::device::Device;
use warplap::ops::registry::Known;
use warplap::{Arg, DType, Error};

use crate::op_dispatcher::{OpDispatcher, OpDispatchers};
use crate::ops::activation::Activation;
use crate::ops::structure::Indices;
use crate::tensor::tensor_layout::TensorLayout;
use crate::tensor::tensors::Plain;

/// One of Burn's backends.
pub(crate) trait Place: Sized + 'static {
    /// Our device for its memory.
    type Device: Device;
    /// Its tensors.
    type Tensor: Clone + Debug + Send + 'static;
    /// What keeps a tensor's memory in its place during a launch.
    type Pin;

    /// Whether Burn's own implementation cannot race here, and so meets the winner in calls.
    const RACES_END_TO_END: bool = false;

    /// Whether block-sparse kernels write columns of a product as they write rows. Where they do not, rows come out as the
    /// transpose of what they write.
    const WRITES_COLUMNS: bool;

    /// How a tensor lies.
    fn layout_of(tensor: &Self::Tensor, argument: &str) -> Result<TensorLayout, Error>;

    /// The dispatchers of the device that a tensor is on.
    fn dispatchers(tensor: &Self::Tensor) -> Result<Arc<OpDispatchers<Self::Device>>, Error>;

    /// The same elements, made contiguous: a copy. Use [`packed`] instead, which counts.
    fn copied(tensor: Self::Tensor) -> Self::Tensor;

    /// The same memory under other sizes and strides, from its first element on.
    fn seen_as(tensor: Self::Tensor, shape: &[usize], strides: &[isize]) -> Self::Tensor;

    /// A new tensor of so many elements beside another one, for a kernel to write.
    fn empty(beside: &Self::Tensor, dtype: DType, len: usize) -> Result<Self::Tensor, Error>;

    /// Pins a tensor's memory.
    fn pin(tensor: &Self::Tensor) -> Result<Self::Pin, Error>;

    /// A pinned tensor's elements from its first to its last.
    fn read<'a>(
        tensor: &'a Self::Tensor,
        pin: &'a Self::Pin,
        len: usize,
    ) -> Result<<Self::Device as Device>::View<'a>, Error>;

    /// A pinned new tensor's elements, to be written.
    fn write<'a>(
        tensor: &'a mut Self::Tensor,
        pin: &'a Self::Pin,
        len: usize,
    ) -> Result<<Self::Device as Device>::ViewMut<'a>, Error>;

    /// Indices on the device.
    fn indices<'a>(indices: &'a Indices, device: &Self::Device) -> Result<<Self::Device as Device>::View<'a>, Error>;

    /// The desk of an operation.
    fn dispatcher<O: Known>(dispatchers: &OpDispatchers<Self::Device>) -> &OpDispatcher<O, Self::Device>;

    /// Looks at what a signature cannot say of arguments: indices that point outside.
    fn check<O: Known>(
        problem: &O::Problem,
        args: &[Arg<'_, Self::Device>],
        device: &Self::Device,
    ) -> Result<(), Error>;

    /// Runs any operation of the registry.
    fn plain(call: &dyn Plain, floats: Vec<Self::Tensor>, ints: Vec<Self::Tensor>) -> Result<Vec<Self::Tensor>, Error>;

    /// Burn's own product, with bias and activation.
    fn product(a: Self::Tensor, b: Self::Tensor, bias: Option<Self::Tensor>, act: Activation) -> Self::Tensor;

    /// Burn's own attention of as many heads of K and V as of Q.
    fn attend(qkv: [Self::Tensor; 3], mask: Option<Self::Tensor>, options: AttentionModuleOptions) -> Self::Tensor;

    /// Waits until everything that was asked of the backend has ended.
    fn wait(tensor: &Self::Tensor) -> Result<(), Error>;

    /// The elements of a tensor, on the host.
    fn values(tensor: Self::Tensor) -> Result<Vec<f64>, Error>;

    /// Runs a launch between what the backend has queued on these tensors before and what it will queue after.
    fn between<R>(
        beside: &Self::Tensor,
        device: &Self::Device,
        launch: impl FnOnce(&<Self::Device as Device>::Queue) -> Result<R, Error>,
    ) -> Result<R, Error>;
}

/// A tensor as it is where its strides will do, or else made contiguous, which is counted.
pub(crate) fn packed<P: Place>(tensor: P::Tensor, argument: &str) -> Result<P::Tensor, Error> {
    if P::layout_of(&tensor, argument)?.is_packed() { Ok(tensor) } else { Ok(copied::<P>(tensor)) }
}

/// A tensor made contiguous, which is counted.
pub(crate) fn copied<P: Place>(tensor: P::Tensor) -> P::Tensor {
    crate::tensor::copies::count();
    P::copied(tensor)
}
