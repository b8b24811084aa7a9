//! The device and its context.

use std::cell::Cell;
use std::ffi::c_char;

use crate::graph::plain;
use crate::state::{INVALID, MEMORY, code, enter, outside_capture, wait};

thread_local! {
    /// The context of this thread.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

plain! {
    cuInit(_flags: u32) { Ok(()) }
    cuDriverGetVersion(to: *mut i32) { to.write(13_000); Ok(()) }
    cuDeviceGetCount(to: *mut i32) { to.write(1); Ok(()) }
    cuDeviceGet(to: *mut i32, ordinal: i32) { to.write(ordinal); Ok(()) }
    cuDeviceGetName(to: *mut c_char, len: i32, _device: i32) {
        let name = b"Stand-in\0";
        if (len as usize) < name.len() {
            return Err(INVALID);
        }
        std::ptr::copy_nonoverlapping(name.as_ptr().cast(), to, name.len());
        Ok(())
    }
    cuDeviceGetUuid_v2(to: *mut [u8; 16], device: i32) { to.write([device as u8; 16]); Ok(()) }
    cuDeviceTotalMem_v2(to: *mut usize, _device: i32) { to.write(MEMORY); Ok(()) }
    cuDeviceGetAttribute(to: *mut i32, attribute: i32, _device: i32) {
        // Those of an H200, by the numbers of CUdevice_attribute.
        to.write(match attribute {
            75 => 9,
            16 => 132,
            13 => 1_980_000,
            38 => 50 << 20,
            97 => 232_448,
            _ => 0,
        });
        Ok(())
    }
    cuDevicePrimaryCtxRetain(to: *mut usize, _device: i32) { to.write(1); Ok(()) }
    cuDevicePrimaryCtxRelease_v2(_device: i32) { Ok(()) }
    cuCtxSetCurrent(context: usize) { CURRENT.set(context); Ok(()) }
    cuCtxGetCurrent(to: *mut usize) { to.write(CURRENT.get()); Ok(()) }
    cuCtxSynchronize() { outside_capture()?; wait() }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(error: i32, to: *mut *const c_char) -> i32 {
    let name = match error {
        2 => c"CUDA_ERROR_OUT_OF_MEMORY",
        700 => c"CUDA_ERROR_ILLEGAL_ADDRESS",
        701 => c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
        716 => c"CUDA_ERROR_MISALIGNED_ADDRESS",
        719 => c"CUDA_ERROR_LAUNCH_FAILED",
        _ => return INVALID,
    };
    unsafe { to.write(name.as_ptr()) };
    0
}
