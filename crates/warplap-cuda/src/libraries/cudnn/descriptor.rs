//! Descriptors: what the library is told of, one attribute after the other. An attribute knows the type of its values.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::null_mut;

use super::library::{Dnn, DnnOpaque};
use crate::error::CudaError;

/// An attribute: its number, the number of its type, and the type as it lies in memory.
pub(super) struct Attribute<T> {
    name: i32,
    kind: i32,
    holds: PhantomData<T>,
}

macro_rules! attributes {
    ($($holds:ty, $kind:literal: $($name:ident = $number:literal),*;)*) => {
        $($(pub(super) const $name: Attribute<$holds> =
            Attribute { name: $number, kind: $kind, holds: PhantomData };)*)*
    };
}

// The numbers are those of `cudnnBackendAttributeName_t` and `cudnnBackendAttributeType_t`. Descriptors (15) are set by
// `refer` and read by `fill`.
attributes! {
    DnnOpaque, 0: GRAPH_HANDLE = 800, PLAN_HANDLE = 400;
    i32, 1: TENSOR_TYPE = 901, POINTWISE_TYPE = 1, MATMUL_TYPE = 1500, REDUCTION_TYPE = 1601;
    bool, 2: TENSOR_IS_INNER = 907, TENSOR_IS_VALUE = 908;
    i64, 3: TENSOR_ALIGN = 900, TENSOR_DIMS = 902, TENSOR_STRIDES = 903, TENSOR_ID = 906, POINTWISE_AXIS = 9,
        PLAN_WORKSPACE = 402, PACK_IDS = 1000;
    u64, 6: PACK_POINTERS = 1001, PACK_WORKSPACE = 1003;
    i32, 8: HEURISTICS_MODE = 200;
    i32, 14: POINTWISE_MODE = 0;
    i32, 18: REDUCTION_MODE = 1600;
    u8, 24: PLAN_TEXT = 405, CHIP_TEXT = 2702;
}

/// Numbers of `cudnnBackendDescriptorType_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Kind {
    Pointwise = 0,
    Config = 3,
    Heuristics = 4,
    Plan = 5,
    PointwiseNode = 13,
    Graph = 15,
    Pack = 16,
    Tensor = 17,
    Matmul = 18,
    MatmulNode = 19,
    Reduction = 21,
    ReductionNode = 22,
    Chip = 38,
}

const DESCRIPTOR: i32 = 15;

/// One descriptor of the library.
pub(super) struct Descriptor {
    dnn: &'static Dnn,
    at: DnnOpaque,
}

// SAFETY: a descriptor belongs to no thread; whoever has one calls the library from one thread at a time, since all
// calls borrow it and it is not `Sync`.
unsafe impl Send for Descriptor {}

impl Descriptor {
    pub(super) fn new(dnn: &'static Dnn, kind: Kind) -> Result<Self, CudaError> {
        let mut at = null_mut();
        // SAFETY: the pointer is to a local; what is made is destroyed in `drop`.
        dnn.checked(unsafe { (dnn.make)(kind as i32, &mut at) }, "cudnnBackendCreateDescriptor")?;
        Ok(Descriptor { dnn, at })
    }

    /// The same with an attribute.
    pub(super) fn with<T: Copy>(self, attribute: &Attribute<T>, values: &[T]) -> Result<Self, CudaError> {
        self.put(attribute.name, attribute.kind, values)?;
        Ok(self)
    }

    /// The same with an attribute that is other descriptors. They must live as long as this one.
    pub(super) fn refer<'d>(
        self,
        name: i32,
        others: impl IntoIterator<Item = &'d Descriptor>,
    ) -> Result<Self, CudaError> {
        let others: Vec<DnnOpaque> = others.into_iter().map(|other| other.at).collect();
        self.put(name, DESCRIPTOR, &others)?;
        Ok(self)
    }

    fn put<T: Copy>(&self, name: i32, kind: i32, values: &[T]) -> Result<(), CudaError> {
        let from = values.as_ptr().cast::<c_void>();
        // SAFETY: the values are of the type that the number says, as many as is said, and are copied by the library.
        let status = unsafe { (self.dnn.set)(self.at, name, kind, values.len() as i64, from) };
        self.dnn.checked(status, "cudnnBackendSetAttribute")
    }

    /// The same, complete: it may be used from now on and not be changed.
    pub(super) fn finalized(self) -> Result<Self, CudaError> {
        // SAFETY: the descriptor is alive.
        self.dnn.checked(unsafe { (self.dnn.finalize)(self.at) }, "cudnnBackendFinalize")?;
        Ok(self)
    }

    /// The values of an attribute, at most as many as `into` holds; gives how many there are.
    pub(super) fn read<T: Copy>(&self, attribute: &Attribute<T>, into: &mut [T]) -> Result<usize, CudaError> {
        self.get(attribute.name, attribute.kind, into)
    }

    /// Descriptors that the library fills with the values of an attribute; gives those that it has values for.
    pub(super) fn fill(&self, name: i32, mut into: Vec<Descriptor>) -> Result<Vec<Descriptor>, CudaError> {
        let mut places: Vec<DnnOpaque> = into.iter().map(|other| other.at).collect();
        let count = self.get(name, DESCRIPTOR, &mut places)?;
        into.truncate(count);
        Ok(into)
    }

    fn get<T: Copy>(&self, name: i32, kind: i32, into: &mut [T]) -> Result<usize, CudaError> {
        let (mut count, most) = (0, into.len() as i64);
        let to = if into.is_empty() { null_mut() } else { into.as_mut_ptr().cast::<c_void>() };
        // SAFETY: `into` holds as many values of the type that the number says as is said.
        let status = unsafe { (self.dnn.get_attribute)(self.at, name, kind, most, &mut count, to) };
        self.dnn.checked(status, "cudnnBackendGetAttribute")?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Queues a plan, which this is, with what a pack names.
    ///
    /// # Safety
    /// The handle is alive and nobody else's meanwhile, and the pack names memory that holds what the plan's graph says
    /// until its work has ended.
    pub(super) unsafe fn execute(&self, handle: DnnOpaque, pack: &Descriptor) -> Result<(), CudaError> {
        // SAFETY: the caller's word; both descriptors are alive.
        let status = unsafe { (self.dnn.execute)(handle, self.at, pack.at) };
        self.dnn.checked(status, "cudnnBackendExecute")
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: made in `new`, destroyed once.
        unsafe { (self.dnn.unmake)(self.at) };
    }
}
