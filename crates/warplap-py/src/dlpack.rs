//! DLPack: the structures array libraries hand each other, as its specification lays them out, and the C exchange API.

use std::ffi::{c_char, c_int, c_void};

use pyo3::ffi::PyObject;

/// `kDLCPU`.
pub(crate) const CPU: i32 = 1;
/// `kDLCUDA`.
pub(crate) const CUDA: i32 = 2;
/// `kDLCUDAHost` and `kDLCUDAManaged`: host-readable memory.
pub(crate) const CUDA_HOST: i32 = 3;

/// The tensor may not be written.
pub(crate) const READ_ONLY: u64 = 1;

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DlDevice {
    pub(crate) kind: i32,
    pub(crate) index: i32,
}

/// Kind of number (0 int, 1 uint, 2 float, 4 bfloat, 6 bool), bits, lanes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DlType {
    pub(crate) code: u8,
    pub(crate) bits: u8,
    pub(crate) lanes: u16,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct DlTensor {
    pub(crate) data: *mut c_void,
    pub(crate) device: DlDevice,
    pub(crate) ndim: i32,
    pub(crate) dtype: DlType,
    pub(crate) shape: *mut i64,
    pub(crate) strides: *mut i64,
    pub(crate) byte_offset: u64,
}

#[repr(C)]
pub(crate) struct DlManaged {
    pub(crate) tensor: DlTensor,
    pub(crate) context: *mut c_void,
    pub(crate) deleter: Option<unsafe extern "C" fn(*mut DlManaged)>,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DlVersion {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

#[repr(C)]
pub(crate) struct DlManagedVersioned {
    pub(crate) version: DlVersion,
    pub(crate) context: *mut c_void,
    pub(crate) deleter: Option<unsafe extern "C" fn(*mut DlManagedVersioned)>,
    pub(crate) flags: u64,
    pub(crate) tensor: DlTensor,
}

type SetError = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char);

/// What a tensor type offers in its attribute `__dlpack_c_exchange_api__`, major version 1.
#[repr(C)]
pub(crate) struct ExchangeApi {
    pub(crate) version: DlVersion,
    pub(crate) previous: *const ExchangeApi,
    pub(crate) allocate:
        unsafe extern "C" fn(*mut DlTensor, *mut *mut DlManagedVersioned, *mut c_void, SetError) -> c_int,
    pub(crate) export: unsafe extern "C" fn(*mut PyObject, *mut *mut DlManagedVersioned) -> c_int,
    pub(crate) import: unsafe extern "C" fn(*mut DlManagedVersioned, *mut *mut PyObject) -> c_int,
    pub(crate) peek: Option<unsafe extern "C" fn(*mut PyObject, *mut DlTensor) -> c_int>,
    pub(crate) stream: unsafe extern "C" fn(i32, i32, *mut *mut c_void) -> c_int,
}

/// The name of the capsule that holds an [`ExchangeApi`].
pub(crate) const EXCHANGE: &std::ffi::CStr = c"dlpack_exchange_api";
