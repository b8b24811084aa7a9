//! Burn's CPU backend as a place: its tensors are slices of host memory, and a launch has ended when it returns.

use std::sync::Arc;

use burn::backend::Flex;
use burn::backend::ops::AttentionModuleOptions;
use burn::tensor::{DType as BurnType, Shape};
use burn_flex::{FlexTensor, Layout as FlexLayout};
use cubecl_environment::bytes::Bytes;
use half::{bf16, f16};
use warplap::core::catalog::Raced;
use warplap::cpu::{Slice, SliceMut};
use warplap::ops::registry::Known;
use warplap::{Arg, Cpu, DType, Error};

use crate::backends::place::Place;
use crate::backends::rival;
use crate::op_dispatcher::{OpDispatcher, OpDispatchers};
use crate::ops::activation::Activation;
use crate::ops::structure::Indices;
use crate::setup;
use crate::tensor::dtype;
use crate::tensor::tensor_layout::{TensorLayout, wrong};
use crate::tensor::tensors::Plain;

/// Burn's CPU backend.
pub(crate) struct OnFlex;

/// No kernel of the CPU asks for more than an element's own alignment, so all addresses share the records of the best.
const ALIGN: u64 = 64;

impl Place for OnFlex {
    type Device = Cpu;
    type Tensor = FlexTensor;
    type Pin = ();

    const WRITES_COLUMNS: bool = false;

    fn layout_of(tensor: &FlexTensor, argument: &str) -> Result<TensorLayout, Error> {
        let layout = tensor.layout();
        let dtype = dtype::ours(tensor.dtype(), argument)?;
        Ok(TensorLayout { shape: layout.shape().to_vec(), strides: layout.strides().to_vec(), dtype, align: ALIGN })
    }

    fn dispatchers(_: &FlexTensor) -> Result<Arc<OpDispatchers<Cpu>>, Error> {
        Ok(setup::state().cpu())
    }

    fn copied(tensor: FlexTensor) -> FlexTensor {
        tensor.to_contiguous()
    }

    fn seen_as(tensor: FlexTensor, shape: &[usize], strides: &[isize]) -> FlexTensor {
        let start = tensor.layout().start_offset();
        tensor.with_layout(FlexLayout::new(Shape::from(shape.to_vec()), strides.to_vec(), start))
    }

    fn empty(_: &FlexTensor, dtype: DType, len: usize) -> Result<FlexTensor, Error> {
        // Not Burn's own `empty`: it makes bytes first, and copies them to where elements may lie.
        let bytes = match dtype.bytes() {
            8 => Bytes::from_elems(vec![0u64; len]),
            4 => Bytes::from_elems(vec![0u32; len]),
            2 => Bytes::from_elems(vec![0u16; len]),
            _ => Bytes::from_elems(vec![0u8; len]),
        };
        Ok(FlexTensor::new(bytes, FlexLayout::contiguous(Shape::from(vec![len])), dtype::burns(dtype)?))
    }

    fn pin(_: &FlexTensor) -> Result<(), Error> {
        Ok(())
    }

    fn read<'a>(tensor: &'a FlexTensor, (): &'a (), len: usize) -> Result<Slice<'a>, Error> {
        let start = tensor.layout().start_offset();
        macro_rules! slices {
            ($($burns:ident = $ours:ident $element:ty),*) => {
                match tensor.dtype() {
                    $(BurnType::$burns => tensor.storage::<$element>().get(start..start + len).map(Slice::$ours),)*
                    other => return Err(strange(other)),
                }
            };
        }
        let slice = slices!(
            F64 = F64 f64, F32 = F32 f32, F16 = F16 f16, BF16 = Bf16 bf16, I64 = I64 i64, I32 = I32 i32, I8 = I8 i8,
            U8 = U8 u8
        );
        slice.ok_or_else(|| short(len))
    }

    fn write<'a>(tensor: &'a mut FlexTensor, (): &'a (), _: usize) -> Result<SliceMut<'a>, Error> {
        // Nobody shares a tensor that was just made: what is written is its own memory.
        Ok(match tensor.dtype() {
            BurnType::F64 => SliceMut::F64(tensor.storage_mut()),
            BurnType::F32 => SliceMut::F32(tensor.storage_mut()),
            BurnType::F16 => SliceMut::F16(tensor.storage_mut()),
            BurnType::BF16 => SliceMut::Bf16(tensor.storage_mut()),
            BurnType::I64 => SliceMut::I64(tensor.storage_mut()),
            BurnType::I32 => SliceMut::I32(tensor.storage_mut()),
            BurnType::I8 => SliceMut::I8(tensor.storage_mut()),
            BurnType::U8 => SliceMut::U8(tensor.storage_mut()),
            other => return Err(strange(other)),
        })
    }

    fn dispatcher<O: Known>(dispatchers: &OpDispatchers<Cpu>) -> &OpDispatcher<O, Cpu> {
        dispatchers.of::<O>()
    }

    fn check<O: Known>(problem: &O::Problem, args: &[Arg<'_, Cpu>], device: &Cpu) -> Result<(), Error> {
        <O as Raced<Cpu>>::check(problem, args, device)
    }

    fn indices<'a>(indices: &'a Indices, _: &Cpu) -> Result<Slice<'a>, Error> {
        Ok(Slice::I32(indices.host()))
    }

    fn plain(call: &dyn Plain, floats: Vec<FlexTensor>, ints: Vec<FlexTensor>) -> Result<Vec<FlexTensor>, Error> {
        call.flex(floats, ints)
    }

    fn product(a: FlexTensor, b: FlexTensor, bias: Option<FlexTensor>, act: Activation) -> FlexTensor {
        rival::product::<Flex>(a, b, bias, act)
    }

    fn attend(qkv: [FlexTensor; 3], mask: Option<FlexTensor>, options: AttentionModuleOptions) -> FlexTensor {
        rival::attend::<Flex>(qkv, mask, options)
    }

    fn wait(_: &FlexTensor) -> Result<(), Error> {
        Ok(())
    }

    fn values(tensor: FlexTensor) -> Result<Vec<f64>, Error> {
        Ok(tensor.into_data().iter::<f64>().collect())
    }

    fn between<R>(_: &FlexTensor, _: &Cpu, launch: impl FnOnce(&()) -> Result<R, Error>) -> Result<R, Error> {
        launch(&())
    }
}

fn short(len: usize) -> Error {
    wrong("a tensor", format!("holds fewer than the {len} elements that its sizes say"))
}

fn strange(dtype: BurnType) -> Error {
    wrong("a tensor", format!("holds {dtype:?}, which no kernel takes"))
}
