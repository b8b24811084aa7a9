//! Memory that is lent: a tensor's memory to a kernel, as an argument; a kernel's memory to a Python callable, as what
//! a tensor over it needs.

use pyo3::prelude::*;
use warplap::core::device::Device;
use warplap::core::rejection::Rejection;
use warplap::core::variant::Kernel;
use warplap::cuda::{self, Stream};
use warplap::{Arg, Cpu, Cuda};

use crate::call::torch::Torch;
use crate::launch::pool::Pool;
use crate::tensor::dlpack::{self, DlDevice};
use crate::tensor::view::{Element, View};

/// A device whose memory is lent both ways.
pub(crate) trait LaunchDevice: Device {
    /// Where a buffer of a launch lies; `None` where it is none.
    fn address(arg: &mut Arg<'_, Self>) -> Option<usize>;

    /// A tensor's memory as an argument; `None` where its elements are no numbers that kernels take, or do not lie on
    /// addresses their type may have.
    ///
    /// # Safety
    /// The object behind the view is alive for `'a` and is on this device, and nobody else writes its elements
    /// meanwhile, or reads them where they are written.
    unsafe fn arg<'a>(view: &View, written: bool) -> Option<Arg<'a, Self>>;

    /// Its name in DLPack.
    fn place(&self) -> DlDevice;

    /// Where a call's launch is queued: torch's current stream of a GPU, or the default one.
    fn current(&self, py: Python<'_>) -> Self::Queue;

    /// Brings threads it shares with others into the state that a parallel operation of theirs leaves them in.
    fn rouse(&self);

    /// Waits until everything queued has ended.
    fn wait(&self, queue: &Self::Queue);

    /// Launches a kernel, with the interpreter's lock given up where that is worth it.
    fn launch(
        py: Python<'_>,
        kernel: &dyn Kernel<Self>,
        args: &mut [Arg<'_, Self>],
        queue: &Self::Queue,
        brief: bool,
    ) -> Result<(), Rejection>;

    /// Whether what is launched now is only timed, and nobody reads what it leaves.
    fn is_timed(queue: &Self::Queue) -> bool;

    /// Runs a callable so that what it launches is queued here, and memory it lets go of stays in the pool.
    fn on_queue<R>(
        py: Python<'_>,
        queue: &Self::Queue,
        place: DlDevice,
        pool: &Pool,
        call: impl FnOnce() -> PyResult<R>,
    ) -> PyResult<R>;
}

impl LaunchDevice for Cpu {
    fn address(arg: &mut Arg<'_, Self>) -> Option<usize> {
        Some(match arg {
            Arg::Read(view) => view.address(),
            Arg::Write(view) => view.as_mut_ptr() as usize,
            Arg::Scalar(_) | Arg::Absent => return None,
        })
    }

    #[inline]
    unsafe fn arg<'a>(view: &View, written: bool) -> Option<Arg<'a, Self>> {
        let len = view.span()?;
        // SAFETY: the caller's word; the tensor spans what its sizes and strides say.
        unsafe { if written { view.slice_mut(len).map(Arg::Write) } else { view.slice(len).map(Arg::Read) } }
    }

    fn place(&self) -> DlDevice {
        DlDevice { kind: dlpack::CPU, index: 0 }
    }

    #[inline]
    fn current(&self, _: Python<'_>) {}

    fn rouse(&self) {
        self.pool().rouse();
    }

    fn wait(&self, (): &()) {}

    #[inline]
    fn launch(
        py: Python<'_>,
        kernel: &dyn Kernel<Self>,
        args: &mut [Arg<'_, Self>],
        queue: &(),
        brief: bool,
    ) -> Result<(), Rejection> {
        if brief { kernel.launch(args, queue) } else { py.detach(|| kernel.launch(args, queue)) }
    }

    fn is_timed((): &()) -> bool {
        warplap::cpu::clock::is_timed()
    }

    fn on_queue<R>(_: Python<'_>, (): &(), _: DlDevice, _: &Pool, call: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
        call()
    }
}

impl LaunchDevice for Cuda {
    fn address(arg: &mut Arg<'_, Self>) -> Option<usize> {
        match arg {
            Arg::Read(view) => Some(view.address() as usize),
            Arg::Write(view) => Some(view.address() as usize),
            Arg::Scalar(_) | Arg::Absent => None,
        }
    }

    #[inline]
    unsafe fn arg<'a>(view: &View, written: bool) -> Option<Arg<'a, Self>> {
        let (Element::Float(dtype), Some(len)) = (view.element, view.span()) else { return None };
        let address = view.address as u64;
        // SAFETY: the caller's word; the tensor spans what its sizes and strides say, and torch keeps memory that a
        // stream still uses from others on that stream.
        Some(unsafe {
            match written {
                true => Arg::Write(cuda::ViewMut::from_raw(address, dtype, len)),
                false => Arg::Read(cuda::View::from_raw(address, dtype, len)),
            }
        })
    }

    fn place(&self) -> DlDevice {
        DlDevice { kind: dlpack::CUDA, index: self.ordinal() }
    }

    #[inline]
    fn current(&self, py: Python<'_>) -> Stream {
        let stream = Torch::here(py).and_then(|t| t.stream(self.ordinal())).unwrap_or(0);
        // SAFETY: the exchange API gave torch's current stream of this device; the default stream is always there.
        unsafe { self.foreign_stream(stream) }
    }

    fn rouse(&self) {}

    fn wait(&self, queue: &Stream) {
        // What was launched and failed is told by whoever asks for its answer.
        let _ = queue.synchronize();
    }

    #[inline]
    fn launch(
        _: Python<'_>,
        kernel: &dyn Kernel<Self>,
        args: &mut [Arg<'_, Self>],
        queue: &Stream,
        _: bool,
    ) -> Result<(), Rejection> {
        kernel.launch(args, queue)
    }

    fn is_timed(queue: &Stream) -> bool {
        queue.is_timed()
    }

    fn on_queue<R>(
        py: Python<'_>,
        queue: &Stream,
        place: DlDevice,
        pool: &Pool,
        call: impl FnOnce() -> PyResult<R>,
    ) -> PyResult<R> {
        let Some(torch) = Torch::here(py) else { return call() };
        torch.on_stream(py, queue.handle(), place.index, || pool.lend(py, place.index, call))
    }
}
