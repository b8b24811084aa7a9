//! What oracles on a GPU share: the inputs of a problem come in as addresses, a kernel in double precision runs on
//! them, and the largest magnitudes it met come back: from them follows how far a candidate may be off.
//!
//! Inputs lie as they were drawn; where they are right answers of other operations, they are doubles ([`Width`]).

mod width;

pub(crate) use width::{Width, addresses, width_and_addresses};

use std::ffi::c_void;

use warplap_core::array::Array;
use warplap_core::device::Device;
use warplap_core::error::Error;
use warplap_cuda::{Buffer, Cuda, LaunchShape, Source};

/// Threads of a block of every kernel of a right answer.
pub(crate) const THREADS: u64 = 256;

/// An error after which the host answers.
pub(crate) fn refused(why: impl std::fmt::Display) -> Error {
    Error::Device(format!("no answer in double precision: {why}"))
}

/// Places for so many magnitudes, all zero. Kernels raise them as whole numbers: bits of numbers that are not negative
/// are ordered as the numbers are.
pub(crate) fn magnitudes(cuda: &Cuda, count: u64) -> Result<Buffer, Error> {
    cuda.upload_queued(&Array::F64(vec![0.0; count as usize]))
}

/// What became of magnitudes. Waits for the kernel.
pub(crate) fn read(cuda: &Cuda, magnitudes: &Buffer) -> Result<Vec<f64>, Error> {
    Ok(cuda.stream().read_buffer(magnitudes)?.to_f64())
}

/// Queues a kernel whose parameters are words of 64 bits: addresses, sizes, bits of doubles.
///
/// # Safety
/// The words are the entry's parameters in order, and the addresses are of buffers that hold what it reads and writes.
pub(crate) unsafe fn launch(cuda: &Cuda, source: &Source, blocks: Option<u64>, words: &[u64]) -> Result<(), Error> {
    let blocks = blocks.and_then(|blocks| u32::try_from(blocks).ok()).filter(|blocks| *blocks <= i32::MAX as u32);
    let grid = [blocks.ok_or_else(|| refused("the problem is too large"))?.max(1), 1, 1];
    let function = cuda.build(source).map_err(refused)?;
    let arguments: Vec<*const c_void> = words.iter().map(|word| (&raw const *word).cast()).collect();
    let shape = LaunchShape { grid, threads: THREADS as u32, ..LaunchShape::default() };
    // SAFETY: by this function's own contract.
    Ok(unsafe { function.launch(&shape, &arguments, cuda.stream()) }?)
}
