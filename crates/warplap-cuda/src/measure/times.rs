//! Times: memory on the device and a factor that lies there too come in; the memory goes out multiplied, untouched where
//! the factor is one. Nobody waits for the factor.

use std::ffi::c_void;

use warplap_core::dtype::DType;
use warplap_core::error::Error;

use crate::compile::Source;
use crate::device::Cuda;
use crate::driver::{LaunchShape, Stream};

const THREADS: u32 = 256;

/// Blocks of a multiprocessor: enough to keep memory busy.
const BLOCKS: u32 = 8;

/// The types that are multiplied.
const FLOATS: [DType; 3] = [DType::F16, DType::Bf16, DType::F32];

fn source(dtype: DType) -> Source {
    let defines = vec![("DTYPE", crate::dtype_code(dtype))];
    Source { entry: "times", text: include_str!("../../cu/times.cu"), headers: &[crate::ELEMENT], defines }
}

/// Every form of the kernel, for the test that compiles them.
pub(crate) fn sources() -> [Source; 3] {
    FLOATS.map(source)
}

impl Cuda {
    /// Queues a multiplication of elements in their own place.
    ///
    /// # Safety
    /// There are so many elements of the type at the address, which nobody else reads or writes meanwhile, and one f32
    /// at the other; both are of this device.
    pub unsafe fn times(
        &self,
        (address, dtype, len): (u64, DType, u64),
        by: u64,
        stream: &Stream,
    ) -> Result<(), Error> {
        if !FLOATS.contains(&dtype) {
            return Err(Error::Device(format!("{dtype} is not multiplied in its place")));
        }
        let unbuilt = |why| Error::Device(format!("'times' was not built: {why}"));
        let function = self.build(&source(dtype)).map_err(unbuilt)?;
        let words = [address, by, len];
        let arguments: Vec<*const c_void> = words.iter().map(|word| (&raw const *word).cast()).collect();
        let per_block = u64::from(THREADS) * 16 / dtype.bytes() as u64;
        let blocks = (BLOCKS * self.chip().multiprocessors.max(1)).min(len.div_ceil(per_block).max(1) as u32);
        let shape = LaunchShape { grid: [blocks, 1, 1], threads: THREADS, ..LaunchShape::default() };
        // SAFETY: the entry's parameters in order; the rest is the caller's word.
        Ok(unsafe { function.launch(&shape, &arguments, stream) }?)
    }
}
