//! Burn's CUDA backend as a place: kernels get the tensors' own device pointers, and run on a stream of ours that is
//! ordered between what Burn has queued and what it will queue.

use std::sync::Arc;

use burn::backend::ops::AttentionModuleOptions;
use burn::backend::{BackendTensor, DispatchTensorKind};
use burn::tensor::Shape;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeBackend, CubeDevice};
use cubecl::cuda::CudaRuntime;
use cubecl::zspace::metadata::Metadata;
use cubecl_runtime::runtime::Runtime;
use cubecl_runtime::server::ServerStorage;
use cubecl_runtime::storage::{ComputeStorage, ManagedResource};
use warplap::core::array::Array;
use warplap::core::catalog::Raced;
use warplap::core::device::Device;
use warplap::core::store::default_root;
use warplap::cuda::{Stream, View, ViewMut};
use warplap::ops::registry::Known;
use warplap::{Arg, Cuda, DType, Error};

use crate::backends::fence;
use crate::backends::place::Place;
use crate::backends::rival;
use crate::op_dispatcher::{OpDispatcher, OpDispatchers};
use crate::ops::activation::Activation;
use crate::ops::structure::Indices;
use crate::setup::{self, State};
use crate::tensor::dtype;
use crate::tensor::tensor_layout::TensorLayout;
use crate::tensor::tensors::Plain;

/// Devices with a higher ordinal are not looked for.
pub(crate) const DEVICES: usize = 16;

/// Seconds a key may take unless somebody says otherwise: kernels are compiled and proved in other processes.
const SECONDS: f64 = 20.0;

/// CubeCL's allocations lie on multiples of this and more.
const ALIGN: u64 = 64;

/// Burn's CUDA backend.
pub(crate) struct OnCube;

type Server = <CudaRuntime as Runtime>::Server;
type Resource = <<Server as ServerStorage>::Storage as ComputeStorage>::Resource;

/// Whether a tensor is on an NVIDIA GPU.
pub(crate) fn is_cuda(kind: &DispatchTensorKind) -> bool {
    match kind {
        DispatchTensorKind::Cube(
            BackendTensor::Float(tensor) | BackendTensor::Int(tensor) | BackendTensor::Bool(tensor),
        ) => ordinal(tensor).is_ok(),
        DispatchTensorKind::Cube(BackendTensor::Autodiff(tensor)) => ordinal(tensor.primitive()).is_ok(),
        _ => false,
    }
}

/// Whether two integer tensors are the same memory.
pub(crate) fn is_same_memory(one: &DispatchTensorKind, other: &DispatchTensorKind) -> bool {
    let place = |kind: &DispatchTensorKind| match kind {
        DispatchTensorKind::Cube(BackendTensor::Int(t)) => {
            Some((t.handle.memory.descriptor().id, t.handle.offset_start, t.meta.clone()))
        }
        _ => None,
    };
    place(one).is_some_and(|one| place(other) == Some(one))
}

fn ordinal(tensor: &CubeTensor) -> Result<usize, Error> {
    match &tensor.device {
        CubeDevice::Cuda(device) if device.index < DEVICES => Ok(device.index),
        other => Err(Error::Device(format!("not supported on backend {other:?}: expected Device::cuda(n)"))),
    }
}

impl State {
    /// The dispatchers of a GPU.
    fn gpu(&self, ordinal: usize) -> Result<Arc<OpDispatchers<Cuda>>, Error> {
        let opened = self.gpus[ordinal].get_or_init(|| {
            let device = Cuda::open(ordinal as i32).map_err(|e| e.to_string())?;
            let device = match default_root() {
                Some(root) => device.with_artifacts(&root),
                None => device,
            };
            let mut settings = self.setup.settings.clone();
            settings.policy = Cuda::usual_policy();
            settings.budget.seconds = self.setup.budget.unwrap_or(SECONDS);
            Ok(Arc::new(OpDispatchers::new(Arc::new(device), self.store.clone(), settings)))
        });
        opened.clone().map_err(Error::Device)
    }
}

impl Place for OnCube {
    type Device = Cuda;
    type Tensor = CubeTensor;
    type Pin = ManagedResource<Resource>;

    const RACES_END_TO_END: bool = true;
    const WRITES_COLUMNS: bool = true;

    fn layout_of(tensor: &CubeTensor, argument: &str) -> Result<TensorLayout, Error> {
        let dtype = dtype::ours(tensor.dtype, argument)?;
        let shape = tensor.meta.shape().to_vec();
        let strides = tensor.meta.strides().iter().map(|s| *s as isize).collect();
        let start = tensor.handle.offset_start.unwrap_or(0) | ALIGN;
        Ok(TensorLayout { shape, strides, dtype, align: 1 << start.trailing_zeros() })
    }

    fn dispatchers(tensor: &CubeTensor) -> Result<Arc<OpDispatchers<Cuda>>, Error> {
        setup::state().gpu(ordinal(tensor)?)
    }

    fn copied(tensor: CubeTensor) -> CubeTensor {
        into_contiguous(tensor)
    }

    fn seen_as(mut tensor: CubeTensor, shape: &[usize], strides: &[isize]) -> CubeTensor {
        let strides: Vec<usize> = strides.iter().map(|s| *s as usize).collect();
        tensor.meta = Box::new(Metadata::new(Shape::from(shape.to_vec()), strides));
        tensor
    }

    fn empty(beside: &CubeTensor, dtype: DType, len: usize) -> Result<CubeTensor, Error> {
        let (client, device) = (beside.client.clone(), beside.device.clone());
        Ok(empty_device_contiguous_dtype(client, device, Shape::from(vec![len]), dtype::burns(dtype)?))
    }

    fn pin(tensor: &CubeTensor) -> Result<Self::Pin, Error> {
        // Burn's own thread answers, so what was asked of it before has been queued by then.
        let pinned = tensor.client.get_resource::<Server>(tensor.handle.clone());
        pinned.map_err(|e| Error::Device(format!("Burn does not give the address of a tensor: {e:?}")))
    }

    fn read<'a>(tensor: &'a CubeTensor, pin: &'a Self::Pin, len: usize) -> Result<View<'a>, Error> {
        // SAFETY: the tensor holds so many elements, and the pin keeps them in their place while the view lives; Burn's
        // later work waits for every launch that is given them.
        Ok(unsafe { View::from_raw(pin.resource().ptr, dtype::ours(tensor.dtype, "a tensor")?, len) })
    }

    fn write<'a>(tensor: &'a mut CubeTensor, pin: &'a Self::Pin, len: usize) -> Result<ViewMut<'a>, Error> {
        // SAFETY: as above, of a new tensor that nobody else has.
        Ok(unsafe { ViewMut::from_raw(pin.resource().ptr, dtype::ours(tensor.dtype, "a tensor")?, len) })
    }

    fn indices<'a>(indices: &'a Indices, device: &Cuda) -> Result<View<'a>, Error> {
        let place = usize::try_from(device.ordinal()).ok().and_then(|ordinal| indices.on_gpu.get(ordinal));
        let place = place.ok_or_else(|| Error::Device(format!("there is no GPU {}", device.ordinal())))?;
        if place.get().is_none() {
            let host = indices.host().to_vec();
            let made = device.upload(&Array::I32(if host.is_empty() { vec![0] } else { host }))?;
            let _ = place.set(made);
        }
        let buffer = place.get().ok_or_else(|| Error::Device("indices were not uploaded".into()))?;
        // SAFETY: the buffer holds at least as many, and lives as long as the indices.
        Ok(unsafe { View::from_raw(buffer.address(), DType::I32, indices.host().len()) })
    }

    fn dispatcher<O: Known>(dispatchers: &OpDispatchers<Cuda>) -> &OpDispatcher<O, Cuda> {
        dispatchers.of::<O>()
    }

    fn check<O: Known>(problem: &O::Problem, args: &[Arg<'_, Cuda>], device: &Cuda) -> Result<(), Error> {
        <O as Raced<Cuda>>::check(problem, args, device)
    }

    fn plain(call: &dyn Plain, floats: Vec<CubeTensor>, ints: Vec<CubeTensor>) -> Result<Vec<CubeTensor>, Error> {
        call.cube(floats, ints)
    }

    fn product(a: CubeTensor, b: CubeTensor, bias: Option<CubeTensor>, act: Activation) -> CubeTensor {
        rival::product::<CubeBackend>(a, b, bias, act)
    }

    fn attend(qkv: [CubeTensor; 3], mask: Option<CubeTensor>, options: AttentionModuleOptions) -> CubeTensor {
        rival::attend::<CubeBackend>(qkv, mask, options)
    }

    fn between<R>(
        beside: &CubeTensor,
        device: &Cuda,
        launch: impl FnOnce(&Stream) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let queue = device.queue();
        fence::between(&beside.client, queue, device.ordinal(), || launch(queue))
    }

    fn wait(tensor: &CubeTensor) -> Result<(), Error> {
        fence::finished(&tensor.client)
    }

    fn values(tensor: CubeTensor) -> Result<Vec<f64>, Error> {
        let data = burn_cubecl::ops::into_data_sync(tensor);
        Ok(data.iter::<f64>().collect())
    }
}
