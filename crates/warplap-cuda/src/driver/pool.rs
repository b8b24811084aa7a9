//! The memory pool: memory that one queue alone touches comes from it and goes back to it in the queue's own order.
//!
//! Nobody waits for the device, which a plain allocation and its end both do. While the queue is captured nothing is
//! taken from the pool or given back to it: that would become part of the caller's graph.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use super::api::{DevicePtr, Handle, PoolProps};
use super::context::{Context, Relaxed};
use super::stream::Stream;
use crate::error::CudaError;

/// The share of a device's memory that the pool keeps for later, and bytes at the most.
const KEPT_SHARE: usize = 64;
const KEPT_MOST: usize = 1 << 30;

/// A pool of one device's memory.
pub(crate) struct Pool {
    handle: Handle,
    // What was given back while the queue was captured.
    parked: Mutex<Vec<(DevicePtr, Arc<Stream>)>>,
}

impl Pool {
    /// An error where the device has no pools.
    pub(crate) fn create(context: &Context) -> Result<Self, CudaError> {
        let (api, device, mut handle, mut memory) = (context.api()?, context.device(), 0, 0);
        let props = PoolProps { kind: 1, shared: 0, place: 1, device, security: 0, most: 0, reserved: [0; 56] };
        // SAFETY: pointers to locals of the types cuda.h names; 4 is CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 64 bits wide.
        unsafe {
            api.device_memory(&mut memory, device)?;
            api.pool_create(&mut handle, &props)?;
            let mut kept = (memory / KEPT_SHARE).min(KEPT_MOST) as u64;
            let _ = api.pool_set(handle, 4, (&raw mut kept).cast::<c_void>());
        }
        Ok(Pool { handle, parked: Mutex::default() })
    }

    /// Memory for what is queued on a stream from now on; `None` while the stream is captured. Where there is not
    /// enough, what is kept for later is given up first.
    pub(crate) fn alloc(&self, bytes: usize, stream: &Stream) -> Result<Option<DevicePtr>, CudaError> {
        if stream.is_capturing()? {
            return Ok(None);
        }
        let context = &stream.context;
        // Somebody else's stream may be captured meanwhile.
        let _relaxed = Relaxed::new(context);
        self.unpark(context);
        let (api, mut ptr) = (context.api()?, 0);
        // SAFETY: the pointer is to a local; pool and stream are alive.
        let mut alloc = || context.note(unsafe { api.pool_alloc(&mut ptr, bytes.max(1), self.handle, stream.handle) });
        if let Err(error) = alloc() {
            if !matches!(error, CudaError::Driver { code: 2, .. }) {
                return Err(error);
            }
            // What was given back is there once the stream has come so far.
            stream.synchronize()?;
            self.trim(context)?;
            alloc()?;
        }
        Ok(Some(ptr))
    }

    /// # Safety
    /// The address came from `alloc` on this stream, and only what is queued on it already still uses it.
    pub(crate) unsafe fn free(&self, ptr: DevicePtr, stream: &Arc<Stream>) {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner).push((ptr, stream.clone()));
        let _relaxed = Relaxed::new(&stream.context);
        self.unpark(&stream.context);
    }

    /// Gives back what waits for it, but for streams that are captured.
    fn unpark(&self, context: &Context) {
        let Ok(api) = context.api() else { return };
        let mut parked = self.parked.lock().unwrap_or_else(PoisonError::into_inner);
        parked.retain(|(ptr, stream)| {
            let waits = stream.is_capturing().unwrap_or(true);
            // SAFETY: as `free` was promised; the stream is kept alive by the entry.
            waits || context.note(unsafe { api.pool_free(*ptr, stream.handle) }).is_err()
        });
    }

    /// Gives what is kept for later back to the device.
    pub(crate) fn trim(&self, context: &Context) -> Result<(), CudaError> {
        let api = context.api()?;
        // SAFETY: the pool is alive.
        context.note(unsafe { api.pool_trim(self.handle, 0) })
    }

    /// The end of it, with its context. Memory that is still in use keeps the driver's side of it alive.
    pub(crate) fn destroy(&self, context: &Context) {
        if let Ok(api) = context.api() {
            // SAFETY: created once, destroyed once.
            let _ = unsafe { api.pool_destroy(self.handle) };
        }
    }
}
