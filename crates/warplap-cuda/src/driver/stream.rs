//! Streams and events: where launches are queued and how they are timed.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::api::{DevicePtr, Handle};
use super::context::Context;
use crate::error::CudaError;

/// Where launches are queued: a stream of this crate's own, or the caller's.
#[derive(Debug)]
pub struct Stream {
    pub(crate) context: Arc<Context>,
    pub(crate) handle: Handle,
    owned: bool,
    // Whether this crate captures it itself, into a graph that ends before the kernels in it do.
    pub(crate) rehearses: AtomicBool,
}

impl Stream {
    /// A new stream that does not wait for the default stream.
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, CudaError> {
        let (api, mut handle) = (context.api()?, 0);
        // SAFETY: the pointer is to a local; 1 is CU_STREAM_NON_BLOCKING.
        unsafe { api.stream_create(&mut handle, 1) }?;
        Ok(Stream { context: context.clone(), handle, owned: true, rehearses: AtomicBool::new(false) })
    }

    /// # Safety
    /// The handle is a stream of the same device's primary context and outlives this object.
    pub(crate) unsafe fn foreign(context: &Arc<Context>, handle: Handle) -> Self {
        Stream { context: context.clone(), handle, owned: false, rehearses: AtomicBool::new(false) }
    }

    /// The driver's handle, for libraries that take one.
    pub fn handle(&self) -> usize {
        self.handle
    }

    /// Waits for everything queued so far.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        let api = self.context.api()?;
        // SAFETY: the stream is alive.
        self.context.note(unsafe { api.stream_synchronize(self.handle) })
    }

    /// Whether launches are being captured into a graph instead of run.
    pub fn is_capturing(&self) -> Result<bool, CudaError> {
        let (api, mut status) = (self.context.api()?, 0);
        // SAFETY: the stream is alive, the pointer is to a local.
        self.context.note(unsafe { api.stream_capturing(self.handle, &mut status) })?;
        Ok(status != 0)
    }

    /// Whether launches are captured by this crate's clock: they will be timed, and nobody reads what they leave.
    pub fn is_timed(&self) -> bool {
        self.rehearses.load(Ordering::Relaxed)
    }

    /// # Safety
    /// `to` holds as many bytes as `from`.
    pub(crate) unsafe fn copy_in(&self, to: DevicePtr, from: &[u8]) -> Result<(), CudaError> {
        if from.is_empty() {
            return Ok(());
        }
        let api = self.context.api()?;
        // SAFETY: the caller's word; pageable host memory is staged or copied before this thread goes on.
        let copied = unsafe { api.copy_in(to, from.as_ptr().cast::<c_void>(), from.len(), self.handle) };
        self.context.note(copied)?;
        self.synchronize()
    }

    /// # Safety
    /// `from` holds as many bytes as `to`.
    pub(crate) unsafe fn copy_out(&self, to: &mut [u8], from: DevicePtr) -> Result<(), CudaError> {
        if !to.is_empty() {
            let api = self.context.api()?;
            // SAFETY: the caller's word; the stream is waited for below, while `to` is still borrowed.
            let copied = unsafe { api.copy_out(to.as_mut_ptr().cast::<c_void>(), from, to.len(), self.handle) };
            self.context.note(copied)?;
        }
        self.synchronize()
    }

    /// # Safety
    /// Both hold so many bytes and do not overlap.
    pub(crate) unsafe fn copy_across(&self, to: DevicePtr, from: DevicePtr, bytes: usize) -> Result<(), CudaError> {
        let api = self.context.api()?;
        // SAFETY: the caller's word.
        self.context.note(unsafe { api.copy_across(to, from, bytes, self.handle) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.owned
            && let Ok(api) = self.context.api()
        {
            // SAFETY: created in `new`, destroyed once.
            let _ = unsafe { api.stream_destroy(self.handle) };
        }
    }
}

/// A point in a stream whose time can be asked for.
pub(crate) struct Event {
    context: Arc<Context>,
    handle: Handle,
}

impl Event {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, CudaError> {
        let (api, mut handle) = (context.api()?, 0);
        // SAFETY: the pointer is to a local.
        unsafe { api.event_create(&mut handle, 0) }?;
        Ok(Event { context: context.clone(), handle })
    }

    pub(crate) fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        let api = self.context.api()?;
        // SAFETY: both are alive.
        self.context.note(unsafe { api.event_record(self.handle, stream.handle) })
    }

    /// Seconds between this event and a later one, after waiting for that.
    pub(crate) fn seconds_to(&self, end: &Event) -> Result<f64, CudaError> {
        let (api, mut ms) = (self.context.api()?, 0f32);
        // SAFETY: both events are alive, the pointer is to a local.
        unsafe {
            self.context.note(api.event_synchronize(end.handle))?;
            self.context.note(api.event_elapsed(&mut ms, self.handle, end.handle))?;
        }
        Ok(f64::from(ms) * 1e-3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(api) = self.context.api() {
            // SAFETY: created in `new`, destroyed once.
            let _ = unsafe { api.event_destroy(self.handle) };
        }
    }
}
