//! The door between Burn's tensors and calls: tensors of the user come in, and are held to a backend that is there;
//! the call goes through Burn's dispatch. [`run`] is the door for any operation of the registry.

use std::fmt::Debug;
use std::sync::Arc;

use burn::backend::{BackendTensor, Dispatch, DispatchTensor, DispatchTensorKind, TensorMetadata};
use burn::tensor::Tensor;
use burn::tensor::kind::Basic;
use burn_flex::FlexTensor;
use warplap::Error;
use warplap::core::arg::ScalarArg;
use warplap::core::op::Op;
use warplap::core::problem::Problem;
use warplap::core::slot::Slot;
use warplap::ops::registry::Known;

use crate::backends::flex::OnFlex;
use crate::backends::place::{Place, copied};
use crate::call::Call;
use crate::extension::Warplap;
use crate::tensor::adapter::{Manner, Slotted, launch};
use crate::tensor::tensor_layout::wrong;
use crate::tensor::tensor_list::TensorList;

impl<const D: usize, K: Basic> From<Tensor<D, K>> for Slotted<DispatchTensor> {
    fn from(tensor: Tensor<D, K>) -> Self {
        Slotted::Tensor(tensor.into_dispatch())
    }
}

/// Runs any operation of the library on one thing a slot of its signature; slots that are written are left out, and
/// given back in order as new tensors (`Tensor::from_dispatch` makes them typed). There are no gradients.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use warplap_burn::Slotted;
/// use warplap_burn::warplap::{DType, NormProblem};
///
/// # warplap_burn::configure(warplap_burn::Setup::in_memory().budget(0.2));
/// let x = Tensor::<2>::ones([4, 64], &Device::flex());
/// let weight = Tensor::<1>::ones([64], &Device::flex());
/// let given = vec![x.into(), Slotted::Absent, weight.into()];
/// let outputs = warplap_burn::run(&NormProblem::new(4, 64, DType::F32), given)?;
/// let y = Tensor::<2>::from_dispatch(outputs[0].clone());
/// assert_eq!(y.dims(), [4, 64]);
/// # Ok::<(), warplap_burn::Error>(())
/// ```
pub fn run<P>(problem: &P, tensor_list: Vec<Slotted<DispatchTensor>>) -> Result<Vec<DispatchTensor>, Error>
where
    P: Problem,
    P::Op: Known,
{
    let (mut floats, mut ints, mut places) = (Vec::new(), Vec::new(), Vec::new());
    for one in tensor_list {
        places.push(match one {
            Slotted::Tensor(tensor) if tensor.dtype().is_float() => {
                floats.push(untracked(tensor));
                Whence::Float(floats.len() - 1)
            }
            Slotted::Tensor(tensor) => {
                ints.push(tensor);
                Whence::Int(ints.len() - 1)
            }
            Slotted::Scalar(number) => Whence::Scalar(number),
            Slotted::Absent | Slotted::Indices(_) => Whence::Absent,
        });
    }
    let whole = Whole::<P::Op> { problem: problem.clone(), places };
    dispatched(Call::Plain(Arc::new(whole)), floats, ints)
}

/// A tensor without its place in a graph of gradients.
fn untracked(tensor: DispatchTensor) -> DispatchTensor {
    let tracked = matches!(&tensor.kind, DispatchTensorKind::Autodiff(_));
    if tracked { Tensor::<1>::from_dispatch(tensor).inner().into_dispatch() } else { tensor }
}

/// Makes a call; gives its first output.
pub(crate) fn call(call: Call, floats: Vec<DispatchTensor>) -> Result<DispatchTensor, Error> {
    let missing = || wrong("the outputs", "there are none, expected one");
    calls(call, floats)?.into_iter().next().ok_or_else(missing)
}

/// Makes a call; gives all its outputs.
pub(crate) fn calls(call: Call, floats: Vec<DispatchTensor>) -> Result<Vec<DispatchTensor>, Error> {
    dispatched(call, floats, Vec::new())
}

fn dispatched(
    call: Call,
    floats: Vec<DispatchTensor>,
    ints: Vec<DispatchTensor>,
) -> Result<Vec<DispatchTensor>, Error> {
    if floats.is_empty() && ints.is_empty() {
        return Err(wrong("the arguments", "there is no tensor among them, expected one or more"));
    }
    let mut before = None;
    for tensor in floats.iter().chain(&ints) {
        let got = backend(&tensor.kind)?;
        if *before.get_or_insert(got) != got {
            return Err(Error::Device(format!(
                "tensors are on backends {} and {got}: expected all on one, move them with to_device",
                before.unwrap_or_default()
            )));
        }
    }
    Ok(<Dispatch as Warplap>::warplap(TensorList::new(floats, ints), call).outcome()?.floats)
}

/// The name of a tensor's backend, where kernels of ours run on it.
fn backend(kind: &DispatchTensorKind) -> Result<&'static str, Error> {
    match kind {
        DispatchTensorKind::Autodiff(inner) => backend(inner),
        DispatchTensorKind::Flex(BackendTensor::Quantized(_)) => {
            Err(wrong("a tensor", "is quantized, expected f32, f16 or bf16: dequantize it first"))
        }
        DispatchTensorKind::Flex(_) => Ok("flex"),
        #[cfg(feature = "cuda")]
        DispatchTensorKind::Cube(_) if crate::backends::cube::is_cuda(kind) => Ok("cuda"),
        #[allow(unreachable_patterns, reason = "there are others where a program builds Burn with more backends")]
        other => Err(Error::Device(format!(
            "not supported on backend {:?}: expected Device::flex(), or Device::cuda(n) with the feature `cuda`; \
             move the tensors with to_device",
            other.device()
        ))),
    }
}

/// The outcome of a form that panics, as Burn's own do.
#[track_caller]
pub(crate) fn expect<T>(what: &str, outcome: Result<T, Error>) -> T {
    outcome.unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// Any operation of the registry, its type forgotten.
pub(crate) trait Plain: Debug + Send + Sync {
    /// Runs it on the CPU backend.
    fn flex(&self, floats: Vec<FlexTensor>, ints: Vec<FlexTensor>) -> Result<Vec<FlexTensor>, Error>;

    /// Runs it on CUDA.
    #[cfg(feature = "cuda")]
    fn cube(
        &self,
        floats: Vec<burn_cubecl::tensor::CubeTensor>,
        ints: Vec<burn_cubecl::tensor::CubeTensor>,
    ) -> Result<Vec<burn_cubecl::tensor::CubeTensor>, Error>;
}

/// Where what a slot is given comes from.
#[derive(Clone, Copy, Debug)]
enum Whence {
    Absent,
    Float(usize),
    Int(usize),
    Scalar(ScalarArg),
}

/// One operation's problem and where its slots come from.
struct Whole<O: Op> {
    problem: O::Problem,
    places: Vec<Whence>,
}

impl<O: Op> Debug for Whole<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&O::text(&self.problem))
    }
}

impl<O: Known> Whole<O> {
    fn on<P: Place>(&self, floats: Vec<P::Tensor>, ints: Vec<P::Tensor>) -> Result<Vec<P::Tensor>, Error> {
        let signature = O::signature(&self.problem);
        let tensor_list = |(whence, slot): (&Whence, &Slot)| {
            Ok(match whence {
                Whence::Absent => Slotted::Absent,
                Whence::Float(i) => Slotted::Tensor(fitting::<P>(floats[*i].clone(), slot)?),
                Whence::Int(i) => Slotted::Tensor(fitting::<P>(ints[*i].clone(), slot)?),
                Whence::Scalar(number) => Slotted::Scalar(*number),
            })
        };
        let tensor_list =
            self.places.iter().zip(signature.slots()).map(tensor_list).collect::<Result<Vec<_>, Error>>()?;
        let outputs = launch::<P, O>(&self.problem, tensor_list, &Manner::CHECKED)?;
        let shaped = |(tensor, slot): (P::Tensor, &Slot)| {
            let strides: Vec<isize> = slot.strides.iter().map(|s| *s as isize).collect();
            P::seen_as(tensor, &slot.shape, &strides)
        };
        Ok(outputs.into_iter().zip(signature.written()).map(shaped).collect())
    }
}

/// A tensor that lies as its slot says: itself, or a contiguous copy.
fn fitting<P: Place>(tensor: P::Tensor, slot: &Slot) -> Result<P::Tensor, Error> {
    let tensor_layout = P::layout_of(&tensor, &slot.name)?;
    if tensor_layout.shape != slot.shape {
        return Err(wrong(&slot.name, format!("is {:?}, expected {:?}", tensor_layout.shape, slot.shape)));
    }
    if tensor_layout.dtype != slot.dtype {
        return Err(wrong(
            &slot.name,
            format!("holds {}, expected {}: cast it first", tensor_layout.dtype, slot.dtype),
        ));
    }
    let has_strides = |strides: &[isize]| {
        let sides = slot.shape.iter().zip(&slot.strides).zip(strides);
        sides.into_iter().all(|((n, expected), got)| *n == 1 || *got == *expected as isize)
    };
    if has_strides(&tensor_layout.strides) {
        return Ok(tensor);
    }
    let tensor = copied::<P>(tensor);
    match has_strides(&P::layout_of(&tensor, &slot.name)?.strides) {
        true => Ok(tensor),
        false => {
            Err(wrong(&slot.name, format!("lies as {:?}, expected strides {:?}", tensor_layout.strides, slot.strides)))
        }
    }
}

impl<O: Known> Plain for Whole<O> {
    fn flex(&self, floats: Vec<FlexTensor>, ints: Vec<FlexTensor>) -> Result<Vec<FlexTensor>, Error> {
        self.on::<OnFlex>(floats, ints)
    }

    #[cfg(feature = "cuda")]
    fn cube(
        &self,
        floats: Vec<burn_cubecl::tensor::CubeTensor>,
        ints: Vec<burn_cubecl::tensor::CubeTensor>,
    ) -> Result<Vec<burn_cubecl::tensor::CubeTensor>, Error> {
        self.on::<crate::backends::cube::OnCube>(floats, ints)
    }
}
