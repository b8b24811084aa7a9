//! A device's primary context, shared with whoever else uses it in this process (PyTorch, Burn, the user's own code).

use std::ffi::{CStr, c_char};
use std::sync::{Arc, OnceLock};

use warplap_worker::Class;

use super::api::{Api, DevicePtr, Handle};
use super::pool::Pool;
use crate::chip::Chip;
use crate::error::CudaError;

/// The retained primary context of one device.
pub(crate) struct Context {
    api: &'static Api,
    device: i32,
    handle: Handle,
    // The first fatal error: from then on no call can succeed, and all say why.
    broken: OnceLock<CudaError>,
    // Made when it is first asked for; `None` where the device has none.
    pool: OnceLock<Option<Pool>>,
}

impl Context {
    pub(crate) fn open(ordinal: i32) -> Result<(Arc<Self>, Chip), CudaError> {
        let api = Api::get()?;
        let (mut count, mut device, mut handle) = (0, 0, 0);
        // SAFETY: all pointers are to locals of the types cuda.h names.
        unsafe {
            api.device_count(&mut count)?;
            if !(0..count).contains(&ordinal) {
                return Err(CudaError::NoDevice { ordinal, count });
            }
            api.device_get(&mut device, ordinal)?;
            api.context_retain(&mut handle, device)?;
        }
        let context = Arc::new(Context { api, device, handle, broken: OnceLock::new(), pool: OnceLock::new() });
        let chip = context.chip()?;
        Ok((context, chip))
    }

    /// How many devices the driver knows.
    pub(crate) fn count() -> Result<i32, CudaError> {
        let (api, mut count) = (Api::get()?, 0);
        // SAFETY: the pointer is to a local.
        unsafe { api.device_count(&mut count) }?;
        Ok(count)
    }

    fn chip(&self) -> Result<Chip, CudaError> {
        let (mut name, mut uuid, mut memory, mut driver) = ([0 as c_char; 256], [0; 16], 0usize, 0);
        // SAFETY: the buffer is as long as it is said to be, one byte kept for the end; the others are locals.
        let name = unsafe {
            self.api.device_name(name.as_mut_ptr(), 255, self.device)?;
            self.api.device_uuid(&mut uuid, self.device)?;
            self.api.device_memory(&mut memory, self.device)?;
            self.api.driver_version(&mut driver)?;
            CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
        };
        let read = |attribute| {
            let mut value = 0;
            // SAFETY: the pointer is to a local.
            unsafe { self.api.device_attribute(&mut value, attribute, self.device) }.map(|()| value.max(0) as u32)
        };
        // The numbers are those of CUdevice_attribute in cuda.h.
        Ok(Chip {
            name,
            uuid,
            bus: format!("{:04x}:{:02x}:{:02x}.0", read(50)?, read(33)?, read(34)?),
            capability: (read(75)?, read(76)?),
            multiprocessors: read(16)?,
            clock_khz: read(13)?,
            l2: u64::from(read(38)?),
            memory: memory as u64,
            shared_memory: u64::from(read(97)?),
            driver: (driver / 1000, driver % 1000 / 10),
        })
    }

    /// The function table, with this context current on the calling thread.
    pub(crate) fn api(&self) -> Result<&'static Api, CudaError> {
        if let Some(broken) = self.broken.get() {
            return Err(broken.clone());
        }
        let mut current = 0;
        // Asked every time: whoever else uses CUDA on this thread may have made another one current. Asking is a look
        // at the thread's own memory, setting is not. SAFETY: the pointer is to a local; the context is retained for as
        // long as this object lives.
        unsafe {
            self.api.context_get(&mut current)?;
            if current != self.handle {
                self.api.context_set(self.handle)?;
            }
        }
        Ok(self.api)
    }

    /// Remembers a fatal error, and passes any answer on.
    pub(crate) fn note<T>(&self, answer: Result<T, CudaError>) -> Result<T, CudaError> {
        if let Err(error) = &answer
            && error.class() == Class::Fatal
        {
            let _ = self.broken.set(error.clone());
        }
        answer
    }

    /// The first fatal error, if there was one.
    pub(crate) fn broken(&self) -> Option<&CudaError> {
        self.broken.get()
    }

    pub(crate) fn alloc(&self, bytes: usize) -> Result<DevicePtr, CudaError> {
        // A library may need its workspace for a stream that is being captured.
        let _relaxed = Relaxed::new(self);
        let (api, mut ptr) = (self.api()?, 0);
        // SAFETY: the pointer is to a local; the driver refuses a length of zero.
        let mut alloc = || self.note(unsafe { api.memory_alloc(&mut ptr, bytes.max(1)) });
        match alloc() {
            // What the pool keeps for later may be what is missing now.
            Err(CudaError::Driver { code: 2, .. }) if self.pool.get().is_some_and(Option::is_some) => {
                self.pool().map_or(Ok(()), |pool| pool.trim(self))?;
                alloc()?;
            }
            answer => answer?,
        }
        Ok(ptr)
    }

    /// The memory pool, where the device has one.
    pub(crate) fn pool(&self) -> Option<&Pool> {
        self.pool.get_or_init(|| Pool::create(self).ok()).as_ref()
    }

    pub(crate) fn device(&self) -> i32 {
        self.device
    }

    /// # Safety
    /// The address came from `alloc` and nobody uses it any more.
    pub(crate) unsafe fn free(&self, ptr: DevicePtr) {
        let _relaxed = Relaxed::new(self);
        if let Ok(api) = self.api() {
            // SAFETY: the caller's word. cuMemFree waits for work that is still queued.
            let _ = self.note(unsafe { api.memory_free(ptr) });
        }
    }

    pub(crate) fn synchronize(&self) -> Result<(), CudaError> {
        let api = self.api()?;
        // SAFETY: takes nothing.
        self.note(unsafe { api.context_synchronize() })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if let Some(Some(pool)) = self.pool.get() {
            pool.destroy(self);
        }
        // SAFETY: retained once in `open`, released once here.
        let _ = unsafe { self.api.context_release(self.device) };
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("device", &self.device).finish_non_exhaustive()
    }
}

/// While it lives, calls of this thread that a capture would refuse (loading, allocating) are let through and are no
/// part of it: what is built then belongs to no stream.
pub(crate) struct Relaxed<'c> {
    context: &'c Context,
    before: Option<i32>,
}

impl<'c> Relaxed<'c> {
    pub(crate) fn new(context: &'c Context) -> Self {
        // 2 is CU_STREAM_CAPTURE_MODE_RELAXED.
        Relaxed { context, before: exchange(context, 2) }
    }
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            exchange(self.context, before);
        }
    }
}

/// Sets the thread's capture mode and gives the one before.
fn exchange(context: &Context, mut mode: i32) -> Option<i32> {
    let api = context.api().ok()?;
    // SAFETY: the pointer is to a local.
    unsafe { api.thread_capture_mode(&mut mode) }.ok().map(|()| mode)
}
