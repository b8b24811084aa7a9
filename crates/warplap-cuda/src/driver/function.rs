//! Modules and functions: compiled bytes come in, launches go out.

use std::ffi::{CString, c_void};
use std::sync::Arc;

use warplap_core::resources::Resources;

use super::api::{DevicePtr, Handle, LaunchAttribute, LaunchConfig};
use super::context::Context;
use super::stream::Stream;
use crate::error::CudaError;

/// Dynamic shared memory that never needs asking: the limit of 48 KB counts what the kernel declares itself too.
const PLAIN_SHARED: u32 = 16 << 10;

/// CUDA_ERROR_NOT_FOUND: a module has nothing of that name.
const NOT_FOUND: i32 = 500;

/// A loaded CUBIN.
pub(crate) struct Module {
    context: Arc<Context>,
    handle: Handle,
}

impl Module {
    pub(crate) fn load(context: &Arc<Context>, cubin: &[u8]) -> Result<Arc<Self>, CudaError> {
        let (api, mut handle) = (context.api()?, 0);
        // SAFETY: a CUBIN carries its own length; it came from the compiler, or from a file whose MAC was right.
        context.note(unsafe { api.module_load(&mut handle, cubin.as_ptr().cast::<c_void>()) })?;
        Ok(Arc::new(Module { context: context.clone(), handle }))
    }

    pub(crate) fn function(self: &Arc<Self>, name: &str) -> Result<Function, CudaError> {
        let api = self.context.api()?;
        let entry = CString::new(name).map_err(|_| CudaError::Compile("an entry's name holds a zero byte".into()))?;
        let mut handle = 0;
        // SAFETY: the module is alive, the name ends in zero.
        let result = self.context.note(unsafe { api.module_function(&mut handle, self.handle, entry.as_ptr()) });
        result.map_err(|e| match e {
            CudaError::Driver { code: NOT_FOUND, .. } => CudaError::Compile(format!(
                "there is no entry '{name}': expected an extern \"C\" __global__ of that name"
            )),
            other => other,
        })?;
        // Drivers load a function when it is first needed; asked for its registers (4) they do it now, and its first
        // launch may be captured.
        let mut registers = 0;
        // SAFETY: the function is alive, the pointer is to a local.
        self.context.note(unsafe { api.function_get(&mut registers, 4, handle) })?;
        Ok(Function { module: self.clone(), handle })
    }

    /// Where a global of the module lies, and its bytes; `None` where there is none of that name.
    pub(crate) fn global(&self, name: &str) -> Result<Option<(DevicePtr, usize)>, CudaError> {
        let api = self.context.api()?;
        let name = CString::new(name).map_err(|_| CudaError::Compile("a global's name holds a zero byte".into()))?;
        let (mut address, mut bytes) = (0, 0);
        // SAFETY: the module is alive, the name ends in zero, the pointers are to locals.
        let result = unsafe { api.module_global(&mut address, &mut bytes, self.handle, name.as_ptr()) };
        match self.context.note(result) {
            Ok(()) => Ok(Some((address, bytes))),
            Err(CudaError::Driver { code: NOT_FOUND, .. }) => Ok(None),
            Err(other) => Err(other),
        }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if let Ok(api) = self.context.api() {
            // SAFETY: loaded once; every Function holds the Arc, so nobody can launch it any more.
            let _ = unsafe { api.module_unload(self.handle) };
        }
    }
}

/// The size of a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchShape {
    /// Blocks, in x, y and z.
    pub grid: [u32; 3],
    /// Threads of one block.
    pub threads: u32,
    /// Bytes of dynamic shared memory of one block.
    pub shared: u32,
    /// Whether it may start while the kernel before it ends; the kernel itself waits before it touches memory.
    pub overlap: bool,
    /// Blocks of a cluster in x, y and z; zeros where the kernel says itself, or has none.
    pub cluster: [u32; 3],
}

/// An entry of a loaded module.
pub struct Function {
    module: Arc<Module>,
    handle: Handle,
}

impl Function {
    /// The driver's handle, for callers with launch code of their own. It lives as long as this object.
    pub fn handle(&self) -> usize {
        self.handle
    }

    /// Lets launches ask for so much dynamic shared memory.
    pub fn allow_shared(&self, bytes: u32) -> Result<(), CudaError> {
        if bytes <= PLAIN_SHARED {
            return Ok(());
        }
        let context = &self.module.context;
        let api = context.api()?;
        // SAFETY: the function is alive; 8 is CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES.
        context.note(unsafe { api.function_set(self.handle, 8, i32::try_from(bytes).unwrap_or(i32::MAX)) })
    }

    /// What a launch of this shape takes of a multiprocessor with room for `most` threads; `None` where the driver does
    /// not tell.
    pub fn resources(&self, shape: &LaunchShape, most: u32) -> Option<Resources> {
        let context = &self.module.context;
        let api = context.api().ok()?;
        let ask = |attribute: i32| {
            let mut value = 0;
            // SAFETY: the function is alive, the pointer is to a local.
            context.note(unsafe { api.function_get(&mut value, attribute, self.handle) }).ok()?;
            u32::try_from(value).ok()
        };
        // The numbers of CU_FUNC_ATTRIBUTE_NUM_REGS, LOCAL_SIZE_BYTES and SHARED_SIZE_BYTES.
        let (registers, local, own) = (ask(4)?, ask(3)?, ask(1)?);
        let (threads, mut blocks) = (i32::try_from(shape.threads).ok()?, 0);
        // SAFETY: as above.
        let asked = unsafe { api.most_blocks(&mut blocks, self.handle, threads, shape.shared as usize) };
        context.note(asked).ok()?;
        let shared = own.saturating_add(shape.shared);
        let taken = Resources { registers, local, shared, threads: shape.threads, ..Resources::default() };
        Some(taken.on(u32::try_from(blocks).ok()?, most))
    }

    /// How many clusters of `size` blocks run at once.
    pub fn most_clusters(&self, shape: &LaunchShape, size: u32) -> Result<u32, CudaError> {
        let context = &self.module.context;
        let (api, mut count) = (context.api()?, 0);
        let cluster = clustered([size, 1, 1]);
        let config = LaunchConfig {
            grid: [size, 1, 1],
            block: [shape.threads, 1, 1],
            shared: shape.shared,
            stream: 0,
            attributes: &cluster,
            count: 1,
        };
        // SAFETY: the config and its attribute live until the call returns.
        context.note(unsafe { api.most_clusters(&mut count, self.handle, &config) })?;
        Ok(count.max(0) as u32)
    }

    /// Queues one launch.
    ///
    /// # Safety
    /// `arguments` point to values of the entry's parameter types, in order, and the addresses among them are of device
    /// memory that holds what the kernel reads and writes until it has ended.
    #[inline]
    pub unsafe fn launch(
        &self,
        shape: &LaunchShape,
        arguments: &[*const c_void],
        stream: &Stream,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's word.
        unsafe { self.launch_in(shape, [shape.threads, 1, 1], arguments, stream) }
    }

    /// As [`Function::launch`], with the threads of a block in x, y and z.
    ///
    /// # Safety
    /// As for [`Function::launch`].
    #[inline]
    pub unsafe fn launch_in(
        &self,
        shape: &LaunchShape,
        block: [u32; 3],
        arguments: &[*const c_void],
        stream: &Stream,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's word, and the function is alive.
        unsafe { stream.launch_foreign(self.handle, shape, block, arguments) }
    }
}

/// The attribute that makes clusters of so many blocks.
fn clustered(blocks: [u32; 3]) -> LaunchAttribute {
    let mut value = [0; 16];
    value[..3].copy_from_slice(&blocks);
    // 4 is CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION.
    LaunchAttribute { id: 4, pad: 0, value }
}

impl Stream {
    /// Queues one launch of a function that somebody else has loaded in this device's primary context.
    ///
    /// # Safety
    /// The handle is of such a function and it stays loaded; the rest is as for [`Function::launch`].
    pub unsafe fn launch_foreign(
        &self,
        function: usize,
        shape: &LaunchShape,
        block: [u32; 3],
        arguments: &[*const c_void],
    ) -> Result<(), CudaError> {
        let api = self.context.api()?;
        let mut value = [0; 16];
        value[0] = 1;
        // 6 is CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION.
        let overlap = LaunchAttribute { id: 6, pad: 0, value };
        let (both, mut attributes, mut count);
        (attributes, count) = (&raw const overlap, u32::from(shape.overlap));
        if shape.cluster != [0; 3] {
            // The one that may be left out comes last.
            both = [clustered(shape.cluster), overlap];
            (attributes, count) = (both.as_ptr(), count + 1);
        }
        let config =
            LaunchConfig { grid: shape.grid, block, shared: shape.shared, stream: self.handle, attributes, count };
        // SAFETY: the caller's word for the arguments, which the driver copies before it returns and does not write.
        let launched = unsafe {
            api.launch(&config, function, arguments.as_ptr().cast_mut().cast::<*mut c_void>(), std::ptr::null_mut())
        };
        self.context.note(launched)
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Function")
    }
}
