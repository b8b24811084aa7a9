//! The CPU device: host memory, threads, vector lanes, a clock, and ceilings measured once.

#[cfg(target_arch = "x86_64")]
pub mod amx;
pub mod blas;
mod ceilings;
mod chip;
pub mod clock;
mod device;
pub mod load;
pub mod pool;
pub mod simd;
mod slice;

pub use chip::Chip;
pub use device::{Buffer, Cpu};
pub use slice::{Slice, SliceMut, Typed};
