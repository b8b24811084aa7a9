//! DLPack: the structures array libraries hand each other, as its specification lays them out, and the C exchange API.

use std::ffi::{c_char, c_int, c_void};

use pyo3::ffi::PyObject;
use warplap::DType;

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

/// Kind of number (0 int, 1 uint, 2 float, 4 bfloat, 6 bool, 10 float8_e4m3fn, 12 float8_e5m2), bits, lanes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DlType {
    pub(crate) code: u8,
    pub(crate) bits: u8,
    pub(crate) lanes: u16,
}

impl DlType {
    /// A type as DLPack has it, and the name people know it by.
    pub(crate) const fn of(dtype: DType) -> (DlType, &'static str) {
        let (code, bits, name) = match dtype {
            DType::F64 => (2, 64, "float64"),
            DType::F32 => (2, 32, "float32"),
            DType::F16 => (2, 16, "float16"),
            DType::Bf16 => (4, 16, "bfloat16"),
            DType::F8E4m3 => (10, 8, "float8_e4m3fn"),
            DType::F8E5m2 => (12, 8, "float8_e5m2"),
            DType::I64 => (0, 64, "int64"),
            DType::I32 => (0, 32, "int32"),
            DType::I8 => (0, 8, "int8"),
            DType::U8 => (1, 8, "uint8"),
            DType::Bool => (6, 8, "bool"),
        };
        (DlType { code, bits, lanes: 1 }, name)
    }
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
