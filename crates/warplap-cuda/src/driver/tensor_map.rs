//! Tensor maps: what the bulk copy engine of Hopper is told about a matrix in memory.

use std::ffi::c_void;

use warplap_core::dtype::DType;

use super::api::Api;
use crate::error::CudaError;

/// An encoded map, passed to a kernel by value.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default)]
pub struct TensorMap([u64; 16]);

/// What there is beside one matrix, and which further coordinates copies take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layers {
    /// So many matrices right behind each other; with more than one, copies take a third coordinate.
    Behind(u64),
    /// Panels of `inner` columns side by side in the same lines: so many, and how many of them one copy brings. Copies
    /// take a third coordinate.
    PrePostLaunches(u64, u32),
    /// Heads of batches, each at a stride of its own: how many of both, and the elements from one to the next. Copies
    /// take the head as third and the batch as fourth coordinate.
    Heads {
        /// Heads, and batches.
        counts: [u64; 2],
        /// Elements from one head to the next, and from one batch to the next.
        strides: [u64; 2],
    },
}

/// A matrix of 2-byte or 4-byte elements, or layers of such matrices, and the box that one copy brings.
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
    /// More such matrices.
    pub layers: Layers,
    /// The box: elements along the contiguous side, and lines.
    pub block: [u32; 2],
    /// Bytes of the shared-memory swizzle: 0, 32, 64 or 128.
    pub swizzle: u32,
    /// Whether 256 bytes are brought into L2 for what is asked of a line; wasteful on rows that end off a line.
    pub promote: bool,
    /// Whether f32 is rounded to tf32 on its way to shared memory.
    pub tf32: bool,
}

/// The most dimensions a spec has.
const RANK: usize = 4;

/// A spec as the driver takes it: dimensions, bytes from one to the next of all but the first, and the box. What is
/// behind the rank is not read.
#[derive(Debug, PartialEq, Eq)]
struct Shape {
    rank: u32,
    dims: [u64; RANK],
    strides: [u64; RANK - 1],
    block: [u32; RANK],
}

impl TensorMapSpec {
    fn shape(&self) -> Shape {
        let size = self.dtype.bytes() as u64;
        let (line, [wide, tall]) = (self.pitch * size, self.block);
        let (rank, [third, fourth], [far, further], deep) = match self.layers {
            Layers::Behind(count) => (if count > 1 { 3 } else { 2 }, [count, 1], [line * self.outer, 0], 1),
            Layers::PrePostLaunches(count, together) => (3, [count, 1], [self.inner * size, 0], together),
            Layers::Heads { counts, strides } => (4, counts, strides.map(|elements| elements * size), 1),
        };
        Shape {
            rank,
            dims: [self.inner, self.outer, third, fourth],
            strides: [line, far, further],
            block: [wide, tall, deep, 1],
        }
    }
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
        let Shape { rank, dims, strides, block } = spec.shape();
        let promotion = if spec.promote { 3 } else { 0 };
        let to = (&raw mut map).cast::<c_void>();
        let ones = [1u32; RANK];
        let (dims, strides, block, ones) = (dims.as_ptr(), strides.as_ptr(), block.as_ptr(), ones.as_ptr());
        // SAFETY: `map` is 128 bytes on a 64-byte boundary; the arrays have four entries (strides three), and the rank
        // is four at the most. The address is only written down, not followed.
        unsafe {
            Api::get()?
                .tensor_map_tiled(to, dtype, rank, address, dims, strides, block, ones, 0, swizzle, promotion, 0)?;
        }
        Ok(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_become_the_dimensions_the_driver_is_told() {
        let spec = |layers| TensorMapSpec {
            dtype: DType::F16,
            inner: 64,
            outer: 100,
            pitch: 80,
            layers,
            block: [64, 32],
            swizzle: 128,
            promote: true,
            tf32: false,
        };
        let shape = |layers| {
            let Shape { rank, dims, strides, block } = spec(layers).shape();
            let rank = rank as usize;
            (dims[..rank].to_vec(), strides[..rank - 1].to_vec(), block[..rank].to_vec())
        };
        assert_eq!(shape(Layers::Behind(1)), (vec![64, 100], vec![160], vec![64, 32]));
        assert_eq!(shape(Layers::Behind(3)), (vec![64, 100, 3], vec![160, 16000], vec![64, 32, 1]));
        assert_eq!(shape(Layers::PrePostLaunches(4, 2)), (vec![64, 100, 4], vec![160, 128], vec![64, 32, 2]));
        let heads = Layers::Heads { counts: [8, 2], strides: [8000, 64000] };
        assert_eq!(shape(heads), (vec![64, 100, 8, 2], vec![160, 16000, 128_000], vec![64, 32, 1, 1]));
    }
}
