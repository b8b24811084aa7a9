//! Memory that is lent to Python callables: buffers of a launch come in; what a tensor over them needs goes out.

use pyo3::prelude::*;
use warplap::core::device::Device;
use warplap::cpu::{Slice, SliceMut};
use warplap::cuda::{Stream, View, ViewMut};
use warplap::{Cpu, Cuda, DType};

use crate::dlpack::{self, DlDevice};
use crate::torch::Torch;

/// One buffer of a launch: address, type, sizes and strides as torch counts them.
pub(crate) struct Buffer {
    pub(crate) address: usize,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<i64>,
    pub(crate) strides: Vec<i64>,
}

impl Buffer {
    pub(crate) fn read<D: Lent>(view: &D::View<'_>, shape: &[u64], strides: &[u64]) -> Self {
        Self::at(D::lent(view), shape, strides)
    }

    pub(crate) fn write<D: Lent>(view: &mut D::ViewMut<'_>, shape: &[u64], strides: &[u64]) -> Self {
        Self::at(D::lent_mut(view), shape, strides)
    }

    fn at((address, dtype): (usize, DType), shape: &[u64], strides: &[u64]) -> Self {
        let signed = |sizes: &[u64]| sizes.iter().map(|s| *s as i64).collect();
        Buffer { address, dtype, shape: signed(shape), strides: signed(strides) }
    }
}

/// A device whose memory Python callables can be given.
pub(crate) trait Lent: Device {
    /// Where borrowed memory lies and what it holds.
    fn lent(view: &Self::View<'_>) -> (usize, DType);

    /// As [`Lent::lent`], of memory that is written.
    fn lent_mut(view: &mut Self::ViewMut<'_>) -> (usize, DType);

    /// Its name in DLPack.
    fn place(&self) -> DlDevice;

    /// Runs a callable so that what it launches is queued here.
    fn on_queue<R>(
        py: Python<'_>,
        queue: &Self::Queue,
        place: DlDevice,
        call: impl FnOnce() -> PyResult<R>,
    ) -> PyResult<R>;
}

impl Lent for Cpu {
    fn lent(view: &Slice<'_>) -> (usize, DType) {
        (view.address(), view.dtype())
    }

    fn lent_mut(view: &mut SliceMut<'_>) -> (usize, DType) {
        let dtype = view.dtype();
        let address = match view {
            SliceMut::F64(v) => v.as_mut_ptr() as usize,
            SliceMut::F32(v) => v.as_mut_ptr() as usize,
            SliceMut::F16(v) => v.as_mut_ptr() as usize,
            SliceMut::Bf16(v) => v.as_mut_ptr() as usize,
            SliceMut::I32(v) => v.as_mut_ptr() as usize,
        };
        (address, dtype)
    }

    fn place(&self) -> DlDevice {
        DlDevice { kind: dlpack::CPU, index: 0 }
    }

    fn on_queue<R>(_: Python<'_>, (): &(), _: DlDevice, call: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
        call()
    }
}

impl Lent for Cuda {
    fn lent(view: &View<'_>) -> (usize, DType) {
        (view.address() as usize, view.dtype())
    }

    fn lent_mut(view: &mut ViewMut<'_>) -> (usize, DType) {
        (view.address() as usize, view.dtype())
    }

    fn place(&self) -> DlDevice {
        DlDevice { kind: dlpack::CUDA, index: self.ordinal() }
    }

    fn on_queue<R>(py: Python<'_>, queue: &Stream, place: DlDevice, call: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
        match Torch::here(py) {
            Some(torch) => torch.on_stream(py, queue.handle(), place.index, call),
            None => call(),
        }
    }
}
