//! The table of driver functions this crate calls, loaded once per process.

use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

use libloading::Library;

use crate::error::CudaError;

/// An opaque driver handle (context, stream, event, module, function, graph): pointer-sized, never looked into.
pub(crate) type Handle = usize;
/// An address in device memory.
pub(crate) type DevicePtr = u64;

/// One launch attribute: an id, then 64 bytes of value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LaunchAttribute {
    pub(crate) id: u32,
    pub(crate) pad: u32,
    pub(crate) value: [u32; 16],
}

/// What `cuLaunchKernelEx` takes.
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) stream: Handle,
    pub(crate) attributes: *const LaunchAttribute,
    pub(crate) count: u32,
}

/// What `cuMemPoolCreate` takes.
#[repr(C)]
pub(crate) struct PoolProps {
    /// 1: memory that stays where it is.
    pub(crate) kind: u32,
    /// 0: not to be shared with other processes.
    pub(crate) shared: u32,
    /// 1: on a device.
    pub(crate) place: u32,
    pub(crate) device: i32,
    pub(crate) security: usize,
    /// 0: as much as there is.
    pub(crate) most: usize,
    pub(crate) reserved: [u8; 56],
}

/// The driver library: the file `WARPLAP_CUDA_DRIVER` names and no other, or the system's.
fn open_library() -> Option<Library> {
    if let Some(named) = warplap_core::environment::var("WARPLAP_CUDA_DRIVER") {
        // SAFETY: as below, of the library the user names.
        return unsafe { Library::new(named) }.ok();
    }
    for name in ["libcuda.so.1", "libcuda.so", "nvcuda.dll"] {
        // SAFETY: the NVIDIA driver library has no initialiser that asks anything of its loader.
        if let Ok(library) = unsafe { Library::new(name) } {
            return Some(library);
        }
    }
    None
}

macro_rules! table {
    ($($name:ident = $symbol:literal ($($arg:ident: $ty:ty),*);)*) => {
        /// The loaded functions. The library stays open for as long as the process lives.
        pub(crate) struct Api {
            _library: Library,
            error_name: unsafe extern "C" fn(i32, *mut *const c_char) -> i32,
            $($name: unsafe extern "C" fn($($ty),*) -> i32,)*
        }

        impl Api {
            fn load() -> Result<Self, CudaError> {
                let library = open_library().ok_or(CudaError::NoDriver)?;
                // SAFETY: the signatures are those of cuda.h for the symbol names given.
                unsafe {
                    Ok(Api {
                        error_name: *library.get(b"cuGetErrorName\0").map_err(|_| CudaError::NoSymbol("cuGetErrorName"))?,
                        $($name: *library
                            .get(concat!($symbol, "\0").as_bytes())
                            .map_err(|_| CudaError::NoSymbol($symbol))?,)*
                        _library: library,
                    })
                }
            }

            $(
                /// # Safety
                /// As `cuda.h` asks of the function: pointers point to what it reads or writes, handles are alive.
                #[allow(clippy::too_many_arguments)]
                pub(crate) unsafe fn $name(&self, $($arg: $ty),*) -> Result<(), CudaError> {
                    // SAFETY: passed on to the caller.
                    let code = unsafe { (self.$name)($($arg),*) };
                    if code == 0 { Ok(()) } else { Err(self.error(code, $symbol)) }
                }
            )*
        }
    };
}

table! {
    init = "cuInit" (flags: u32);
    driver_version = "cuDriverGetVersion" (version: *mut i32);
    device_count = "cuDeviceGetCount" (count: *mut i32);
    device_get = "cuDeviceGet" (device: *mut i32, ordinal: i32);
    device_name = "cuDeviceGetName" (name: *mut c_char, len: i32, device: i32);
    // A partition of a card has a name of its own.
    device_uuid = "cuDeviceGetUuid_v2" (uuid: *mut [u8; 16], device: i32);
    device_memory = "cuDeviceTotalMem_v2" (bytes: *mut usize, device: i32);
    device_attribute = "cuDeviceGetAttribute" (value: *mut i32, attribute: i32, device: i32);
    context_retain = "cuDevicePrimaryCtxRetain" (context: *mut Handle, device: i32);
    context_release = "cuDevicePrimaryCtxRelease_v2" (device: i32);
    context_get = "cuCtxGetCurrent" (context: *mut Handle);
    context_set = "cuCtxSetCurrent" (context: Handle);
    context_synchronize = "cuCtxSynchronize" ();
    stream_create = "cuStreamCreate" (stream: *mut Handle, flags: u32);
    stream_destroy = "cuStreamDestroy_v2" (stream: Handle);
    stream_synchronize = "cuStreamSynchronize" (stream: Handle);
    stream_capturing = "cuStreamIsCapturing" (stream: Handle, status: *mut i32);
    stream_capture = "cuStreamGetCaptureInfo_v2" (stream: Handle, status: *mut i32, id: *mut u64, graph: *mut Handle, behind: *mut *const Handle, count: *mut usize);
    thread_capture_mode = "cuThreadExchangeStreamCaptureMode" (mode: *mut i32);
    stream_begin_capture = "cuStreamBeginCapture_v2" (stream: Handle, mode: i32);
    stream_end_capture = "cuStreamEndCapture" (stream: Handle, graph: *mut Handle);
    graph_instantiate = "cuGraphInstantiateWithFlags" (exec: *mut Handle, graph: Handle, flags: u64);
    graph_launch = "cuGraphLaunch" (exec: Handle, stream: Handle);
    graph_exec_destroy = "cuGraphExecDestroy" (exec: Handle);
    graph_destroy = "cuGraphDestroy" (graph: Handle);
    object_create = "cuUserObjectCreate" (object: *mut Handle, value: *mut c_void, destroy: extern "C" fn(*mut c_void), count: u32, flags: u32);
    graph_retain = "cuGraphRetainUserObject" (graph: Handle, object: Handle, count: u32, flags: u32);
    event_create = "cuEventCreate" (event: *mut Handle, flags: u32);
    event_destroy = "cuEventDestroy_v2" (event: Handle);
    event_record = "cuEventRecord" (event: Handle, stream: Handle);
    event_synchronize = "cuEventSynchronize" (event: Handle);
    event_elapsed = "cuEventElapsedTime" (ms: *mut f32, start: Handle, end: Handle);
    memory_alloc = "cuMemAlloc_v2" (ptr: *mut DevicePtr, bytes: usize);
    memory_free = "cuMemFree_v2" (ptr: DevicePtr);
    pool_create = "cuMemPoolCreate" (pool: *mut Handle, props: *const PoolProps);
    pool_destroy = "cuMemPoolDestroy" (pool: Handle);
    pool_set = "cuMemPoolSetAttribute" (pool: Handle, attribute: i32, value: *mut c_void);
    pool_trim = "cuMemPoolTrimTo" (pool: Handle, keep: usize);
    pool_alloc = "cuMemAllocFromPoolAsync" (ptr: *mut DevicePtr, bytes: usize, pool: Handle, stream: Handle);
    pool_free = "cuMemFreeAsync" (ptr: DevicePtr, stream: Handle);
    copy_in = "cuMemcpyHtoDAsync_v2" (to: DevicePtr, from: *const c_void, bytes: usize, stream: Handle);
    copy_out = "cuMemcpyDtoHAsync_v2" (to: *mut c_void, from: DevicePtr, bytes: usize, stream: Handle);
    copy_across = "cuMemcpyDtoDAsync_v2" (to: DevicePtr, from: DevicePtr, bytes: usize, stream: Handle);
    module_load = "cuModuleLoadData" (module: *mut Handle, image: *const c_void);
    module_unload = "cuModuleUnload" (module: Handle);
    module_function = "cuModuleGetFunction" (function: *mut Handle, module: Handle, name: *const c_char);
    module_global = "cuModuleGetGlobal_v2" (ptr: *mut DevicePtr, bytes: *mut usize, module: Handle, name: *const c_char);
    function_get = "cuFuncGetAttribute" (value: *mut i32, attribute: i32, function: Handle);
    function_set = "cuFuncSetAttribute" (function: Handle, attribute: i32, value: i32);
    launch = "cuLaunchKernelEx" (config: *const LaunchConfig, function: Handle, arguments: *mut *mut c_void, extra: *mut *mut c_void);
    most_blocks = "cuOccupancyMaxActiveBlocksPerMultiprocessor" (count: *mut i32, function: Handle, threads: i32, shared: usize);
    most_clusters = "cuOccupancyMaxActiveClusters" (count: *mut i32, function: Handle, config: *const LaunchConfig);
    tensor_map_tiled = "cuTensorMapEncodeTiled" (map: *mut c_void, dtype: i32, rank: u32, address: DevicePtr, dims: *const u64, strides: *const u64, boxes: *const u32, element_strides: *const u32, interleave: i32, swizzle: i32, promotion: i32, fill: i32);
}

impl Api {
    /// The process's table, initialised.
    pub(crate) fn get() -> Result<&'static Api, CudaError> {
        static API: OnceLock<Result<Api, CudaError>> = OnceLock::new();
        API.get_or_init(|| {
            let api = Api::load()?;
            // SAFETY: cuInit takes no pointers and may be called at any time.
            unsafe { api.init(0) }?;
            Ok(api)
        })
        .as_ref()
        .map_err(Clone::clone)
    }

    fn error(&self, code: i32, call: &'static str) -> CudaError {
        let mut name: *const c_char = std::ptr::null();
        // SAFETY: the driver writes a pointer to a static string, or leaves null.
        let known = unsafe { (self.error_name)(code, &mut name) } == 0 && !name.is_null();
        let name = if known {
            // SAFETY: a static NUL-terminated string of the driver.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        } else {
            "unknown error".to_string()
        };
        CudaError::Driver { code, name, call }
    }
}
