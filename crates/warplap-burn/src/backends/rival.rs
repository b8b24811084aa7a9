//! Burn's own implementations as variants: they race as libraries do, proved right like everybody, so that a user never
//! gets less than Burn gives. Where one wins, calls go to it with the caller's own tensors.
//!
//! In a race on the CPU they are called on tensors over the race's own buffers. A race on a GPU is timed on a stream of
//! ours, which Burn cannot be made to launch on: there they meet the winner in calls afterwards ([`crate::heat`]).

use std::any::Any;
use std::mem::MaybeUninit;
use std::sync::Arc;

use burn::backend::ops::AttentionModuleOptions;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Flex, TensorMetadata};
use burn::tensor::{DType as BurnType, Shape};
use burn_flex::{FlexTensor, Layout as FlexLayout};
use cubecl_environment::bytes::{AccessError, AccessPolicy, AllocationController, AllocationProperty, Bytes};
use warplap::core::candidate::SourceHash;
use warplap::core::catalog::Catalog;
use warplap::core::device::Device;
use warplap::core::op::Op;
use warplap::core::rejection::Rejection;
use warplap::core::slot::{Signature, Slot};
use warplap::core::space::{Config, Space};
use warplap::core::variant::{Fit, Kernel, Variant};
use warplap::cpu::{Slice, SliceMut, clock};
use warplap::ops::{attention, gemm};
use warplap::{Activation as Ours, Arg, Attention, AttentionProblem, Cpu, Gemm, GemmProblem};

use crate::ops::activation::Activation;

/// Its id in records, and its name among libraries.
pub(crate) const ID: &str = "burn_flex";

/// The version of Burn that this package is built on: a newer one makes records stale.
pub(crate) const VERSION: &str = "0.22";

/// Whether a variant is Burn's own.
pub(crate) fn is_burns_own(id: &str) -> bool {
    id == ID
}

/// Whether Burn's own implementations race on a kind of device.
pub(crate) fn races<D: Device>() -> bool {
    D::LAUNCH_IS_CALL
}

/// A catalog with Burn's own implementation of the operation, where it has one.
pub(crate) fn join<O: Op, D: Device>(mut catalog: Catalog<O, D>) -> Catalog<O, D> {
    let any = &mut catalog as &mut dyn Any;
    if let Some(products) = any.downcast_mut::<Catalog<Gemm, Cpu>>() {
        *products = products.clone().with(Arc::new(Product));
    } else if let Some(attentions) = any.downcast_mut::<Catalog<Attention, Cpu>>() {
        *attentions = attentions.clone().with(Arc::new(Attend));
    }
    catalog
}

/// Burn's own product, with bias and activation as a layer of Burn's adds them.
pub(crate) fn product<B: Backend>(
    a: FloatTensor<B>,
    b: FloatTensor<B>,
    bias: Option<FloatTensor<B>>,
    act: Activation,
) -> FloatTensor<B> {
    let mut c = B::float_matmul(a, b);
    if let Some(bias) = bias {
        let mut shape = vec![1; c.rank()];
        *shape.last_mut().unwrap_or(&mut 1) = bias.shape().num_elements();
        c = B::float_add(c, B::float_reshape(bias, Shape::from(shape)));
    }
    act.apply::<B>(c)
}

/// Burn's own attention.
pub(crate) fn attend<B: Backend>(
    [q, k, v]: [FloatTensor<B>; 3],
    mask: Option<FloatTensor<B>>,
    options: AttentionModuleOptions,
) -> FloatTensor<B> {
    let [b, h, sq, _] = q.shape().dims::<4>();
    let sk = k.shape()[2];
    let bias = mask.map(|mask| {
        let mask = B::float_reshape(mask, Shape::new([1, 1, sq, sk]));
        B::float_expand(mask, Shape::new([b, h, sq, sk]))
    });
    B::attention(q, k, v, None, bias, options)
}

struct Product;

impl Variant<Gemm, Cpu> for Product {
    fn id(&self) -> &str {
        ID
    }

    fn source(&self) -> SourceHash {
        SourceHash::of(&[ID, VERSION, "gemm"])
    }

    fn fit(&self, p: &GemmProblem, _: &Cpu) -> Fit {
        match p.ldc == p.n && !p.tf32 {
            true => Fit::HIGH,
            false => Fit::aside("Burn gives a new tensor, without padding and not of rounded factors"),
        }
    }

    fn space(&self, _: &GemmProblem, _: &Cpu) -> Space {
        Space::single()
    }

    fn build(&self, p: &GemmProblem, _: &Config, _: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        let act = match p.act {
            Ours::None => Activation::None,
            Ours::Relu => Activation::Relu,
            Ours::Gelu => Activation::Gelu,
            Ours::GeluTanh => Activation::GeluTanh,
            Ours::Silu => Activation::Silu,
            Ours::Tanh => Activation::Tanh,
            Ours::Sigmoid => Activation::Sigmoid,
        };
        let call = move |tensor_list: &[Option<FlexTensor>]| match (
            &tensor_list[gemm::slot::A],
            &tensor_list[gemm::slot::B],
        ) {
            (Some(a), Some(b)) => {
                Some(product::<Flex>(a.clone(), b.clone(), tensor_list[gemm::slot::BIAS].clone(), act))
            }
            _ => None,
        };
        Ok(Box::new(Called { signature: Gemm::signature(p), output: gemm::slot::C, call: Box::new(call) }))
    }

    fn is_library(&self) -> bool {
        true
    }
}

struct Attend;

impl Variant<Attention, Cpu> for Attend {
    fn id(&self) -> &str {
        ID
    }

    fn source(&self) -> SourceHash {
        SourceHash::of(&[ID, VERSION, "attention"])
    }

    fn fit(&self, p: &AttentionProblem, _: &Cpu) -> Fit {
        if p.h != p.hkv {
            return Fit::aside("Burn's attention has as many heads of k and v as of q");
        }
        let same_corner = p.sq == p.sk || p.corner == attention::Corner::Bottom;
        if p.causal && !same_corner {
            return Fit::aside("Burn counts causal positions from the other corner");
        }
        let plain = p.window.is_none() && p.over == attention::Over::All;
        if p.lse || p.has_score_mod() || p.is_uneven() || p.dropout() > 0.0 || !plain {
            return Fit::aside(
                "Burn's attention gives no log-sum-exps, and knows neither windows nor masks of heads here",
            );
        }
        match p.layout {
            attention::Order::Bhsd => Fit::HIGH,
            attention::Order::Bshd => Fit::aside("Burn gives a new tensor whose heads lie one after the other"),
        }
    }

    fn space(&self, _: &AttentionProblem, _: &Cpu) -> Space {
        Space::single()
    }

    fn build(&self, p: &AttentionProblem, _: &Config, _: &Cpu) -> Result<Box<dyn Kernel<Cpu>>, Rejection> {
        let options = AttentionModuleOptions { scale: Some(f64::from(p.scale())), softcap: None, is_causal: p.causal };
        let call = move |tensor_list: &[Option<FlexTensor>]| {
            let qkv = [attention::slot::Q, attention::slot::K, attention::slot::V];
            let [Some(q), Some(k), Some(v)] = qkv.map(|i| tensor_list[i].clone()) else { return None };
            Some(attend::<Flex>([q, k, v], tensor_list[attention::slot::MASK].clone(), options))
        };
        Ok(Box::new(Called { signature: Attention::signature(p), output: attention::slot::OUT, call: Box::new(call) }))
    }

    fn is_library(&self) -> bool {
        true
    }
}

type BurnsCall = dyn Fn(&[Option<FlexTensor>]) -> Option<FlexTensor> + Send + Sync;

/// One of Burn's functions as a kernel.
struct Called {
    signature: Signature,
    output: usize,
    call: Box<BurnsCall>,
}

impl Kernel<Cpu> for Called {
    /// Burn gives its callers new tensors.
    fn writes(&self) -> bool {
        false
    }

    fn launch(&self, args: &mut [Arg<'_, Cpu>], _: &()) -> Result<(), Rejection> {
        let failed = |reason: &str| Rejection::LaunchFailed { reason: reason.into() };
        // SAFETY: the arguments borrow their memory for the time of this launch, and all tensors made here are gone when
        // it ends: what Burn gives back is its own.
        let over = |(arg, slot): (&Arg<'_, Cpu>, &Slot)| arg.view().and_then(|view| unsafe { over(view, slot) });
        let tensor_list: Vec<Option<FlexTensor>> = args.iter().zip(self.signature.slots()).map(over).collect();
        let got = (self.call)(&tensor_list).ok_or_else(|| failed("an argument is missing"))?;
        // A program takes what Burn gives: a copy to where the race wants it is no part of its time.
        if !clock::is_timed() {
            let to = args.get_mut(self.output).ok_or_else(|| failed("the output is missing"))?.write()?;
            copy(&got, to).ok_or_else(|| failed("what Burn gave does not fit the output"))?;
        }
        Ok(())
    }
}

/// Copies a new tensor of Burn's to where it is wanted.
fn copy(from: &FlexTensor, to: SliceMut<'_>) -> Option<()> {
    let from = if from.is_contiguous() { from.clone() } else { from.to_contiguous() };
    macro_rules! each {
        ($($ours:ident),*) => {
            match to {
                $(SliceMut::$ours(to) => {
                    let from = from.as_slice()?;
                    (from.len() == to.len()).then(|| to.copy_from_slice(from))
                })*
                _ => None,
            }
        };
    }
    each!(F32, F16, Bf16)
}

/// A tensor over borrowed memory.
///
/// # Safety
/// The memory outlives the tensor and everything made of it.
unsafe fn over(view: Slice<'_>, slot: &Slot) -> Option<FlexTensor> {
    let (address, width, dtype) = match view {
        Slice::F32(v) => (v.as_ptr().cast::<u8>(), 4, BurnType::F32),
        Slice::F16(v) => (v.as_ptr().cast(), 2, BurnType::F16),
        Slice::Bf16(v) => (v.as_ptr().cast(), 2, BurnType::BF16),
        _ => return None,
    };
    let len = slot.len() * width;
    // SAFETY: the view holds as many elements as its slot spans, which every launch is held to.
    let bytes = unsafe { Bytes::from_controller(Box::new(Borrowed { address, len }), len) };
    let strides = slot.strides.iter().map(|s| *s as isize).collect();
    Some(FlexTensor::new(bytes, FlexLayout::new(Shape::from(slot.shape.clone()), strides, 0), dtype))
}

/// Memory of somebody else's.
struct Borrowed {
    address: *const u8,
    len: usize,
}

impl AllocationController for Borrowed {
    fn alloc_align(&self) -> usize {
        1
    }

    fn property(&self) -> AllocationProperty {
        AllocationProperty::Other
    }

    unsafe fn memory_mut(&mut self, _: AccessPolicy) -> Result<&mut [MaybeUninit<u8>], AccessError> {
        // Inputs are only read.
        Err(AccessError::WouldCopy)
    }

    fn memory(&self, _: AccessPolicy) -> Result<&[MaybeUninit<u8>], AccessError> {
        // SAFETY: whoever made this promised that the memory is there for as long.
        Ok(unsafe { std::slice::from_raw_parts(self.address.cast(), self.len) })
    }
}
