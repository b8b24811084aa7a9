//! Tensor maps: what the bulk copy engine of Hopper is told about a matrix in memory.

use std::ffi::c_void;

use warplap_core::dtype::DType;

use super::api::Api;
use crate::error::CudaError;

/// An encoded map, passed to a kernel by value.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default)]
pub struct TensorMap([u64; 16]);

/// A matrix of 2-byte or 4-byte elements, or layers of such matrices right behind each other, and the box that one copy brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMapSpec {
    /// Type of the elements.
    pub dtype: DType,
    /// Elements along the contiguous side.
    pub inner: u64,
    /// Lines of that many elements.
    pub outer: u64,
    /// Elements from one line to the next.
    pub pitch: u64,
    /// Matrices; with more than one, copies take a third coordinate. The next begins `outer` lines on.
    pub layers: u64,
    /// 0, or how many layers one copy brings: the layers are then panels of `inner` columns side by side in the same
    /// lines, and copies take a third coordinate.
    pub beside: u32,
    /// The box: elements along the contiguous side, and lines.
    pub block: [u32; 2],
    /// Bytes of the shared-memory swizzle: 0, 32, 64 or 128.
    pub swizzle: u32,
    /// Whether 256 bytes are brought into L2 for what is asked of a line; wasteful on rows that end off a line.
    pub promote: bool,
    /// Whether f32 is rounded to tf32 on its way to shared memory.
    pub tf32: bool,
}

impl TensorMap {
    /// Encodes a map of the matrix at an address of device memory (16-byte aligned, as the pitch must be).
    pub fn encode(spec: &TensorMapSpec, address: u64) -> Result<Self, CudaError> {
        // The numbers are those of CUtensorMapDataType and its siblings in cuda.h.
        let dtype = match spec.dtype {
            DType::F16 => 6,
            // FLOAT32 as it is, or TFLOAT32.
            DType::F32 => 7 + 4 * i32::from(spec.tf32),
            DType::F64 => 8,
            DType::Bf16 => 9,
            DType::I32 => 3,
            DType::I64 => 5,
            // Bytes: what they mean is the kernel's affair.
            DType::I8 | DType::U8 | DType::Bool | DType::F8E4m3 | DType::F8E5m2 => 0,
        };
        let swizzle = match spec.swizzle {
            128 => 3,
            64 => 2,
            32 => 1,
            _ => 0,
        };
        let mut map = TensorMap([0; 16]);
        let dims = [spec.inner, spec.outer, spec.layers];
        let line = spec.pitch * spec.dtype.bytes() as u64;
        let apart = if spec.beside > 0 { spec.inner * spec.dtype.bytes() as u64 } else { line * spec.outer };
        let strides = [line, apart];
        let rank = if spec.layers > 1 || spec.beside > 0 { 3 } else { 2 };
        let block = [spec.block[0], spec.block[1], spec.beside.max(1)];
        let promotion = if spec.promote { 3 } else { 0 };
        let to = (&raw mut map).cast::<c_void>();
        let ones = [1u32; 3];
        let (dims, strides, block, ones) = (dims.as_ptr(), strides.as_ptr(), block.as_ptr(), ones.as_ptr());
        // SAFETY: `map` is 128 bytes on a 64-byte boundary; the arrays have three entries (strides two), as many as rank 3
        // asks for.
        // The address is only written down, not followed.
        unsafe {
            Api::get()?
                .tensor_map_tiled(to, dtype, rank, address, dims, strides, block, ones, 0, swizzle, promotion, 0)?;
        }
        Ok(map)
    }
}
