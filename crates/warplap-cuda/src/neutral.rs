//! The neutral kernel: what a timed launch stands behind, so that a kernel that may begin early finds no launch of its
//! own to begin under. Comes in: a stream. Goes out: one launch of some other work, small and always the same.

use std::ffi::c_void;
use std::time::Duration;

use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;

use crate::compile::Source;
use crate::device::Cuda;
use crate::driver::{Function, LaunchShape, Stream};
use crate::error::CudaError;
use crate::memory::Buffer;

const THREADS: u32 = 256;
const BLOCKS: u32 = 256;

/// As it is compiled.
pub(crate) fn source() -> Source {
    let text = include_str!("../cu/neutral.cu");
    Source { entry: "neutral", text, headers: &[], defines: Vec::new() }
}

/// The kernel, loaded, and the memory it works on.
pub(crate) struct Neutral {
    function: Function,
    memory: Buffer,
}

impl Neutral {
    pub(crate) fn new(cuda: &Cuda) -> Result<Self, Rejection> {
        let function = cuda.build(&source())?;
        let memory = Buffer::new(cuda.context(), DType::I32, (THREADS * BLOCKS) as usize).map_err(|e| e.rejection())?;
        Ok(Neutral { function, memory })
    }

    /// Queues one launch that takes so long at least.
    pub(crate) fn launch(&self, least: Duration, stream: &Stream) -> Result<(), CudaError> {
        let (at, ns) = (self.memory.address, least.as_nanos() as i64);
        let arguments: [*const c_void; 2] = [(&raw const at).cast(), (&raw const ns).cast()];
        let shape = LaunchShape { grid: [BLOCKS, 1, 1], threads: THREADS, ..LaunchShape::default() };
        // SAFETY: the entry's parameters in order; the memory holds one number for each thread and lives in this object,
        // which its laps borrow.
        unsafe { self.function.launch(&shape, &arguments, stream) }
    }
}
