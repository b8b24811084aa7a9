//! The canary: a tiny launch whose answer is known. It says whether a context still works after somebody failed in it.

use std::ffi::c_void;

use warplap_core::array::Array;
use warplap_core::device::Device;

use crate::compile::Source;
use crate::device::Cuda;
use crate::driver::LaunchShape;
use crate::error::CudaError;
use crate::memory::Buffer;

const THREADS: u32 = 32;
const SONG: i32 = 0x0600_d000;

const TEXT: &str = "extern \"C\" __global__ void canary(int* out) { out[threadIdx.x] = 0x0600d000 + threadIdx.x; }\n";

impl Cuda {
    /// Launches the canary. The error is what made the context unusable.
    pub fn context_health(&self) -> Result<(), CudaError> {
        if let Some(broken) = self.broken() {
            return Err(broken);
        }
        self.synchronize()?;
        let silent = Array::filled(warplap_core::dtype::DType::I32, THREADS as usize, 0.0);
        let mut out = Buffer::new(self.context(), silent.dtype(), silent.len())?;
        out.fill(&silent, self.queue())?;
        let source = Source { entry: "canary", text: TEXT, headers: &[], defines: Vec::new() };
        // Where there is no compiler the copies there and back must do.
        let Ok(function) = self.build(&source) else {
            let heard = out.read(self.queue())?;
            return if heard == silent { Ok(()) } else { Err(self.wrong_song()) };
        };
        let address = out.address;
        let arguments = [(&raw const address).cast::<c_void>()];
        let shape = LaunchShape { grid: [1, 1, 1], threads: THREADS, ..LaunchShape::default() };
        // SAFETY: the entry takes one pointer, to as many numbers as there are threads.
        unsafe { function.launch(&shape, &arguments, self.queue()) }?;
        let heard = out.read(self.queue())?;
        let song = Array::I32((0..THREADS as i32).map(|i| SONG + i).collect());
        if heard == song { Ok(()) } else { Err(self.wrong_song()) }
    }

    fn wrong_song(&self) -> CudaError {
        // 999 is CUDA_ERROR_UNKNOWN, which is fatal.
        CudaError::Driver { code: 999, name: "the canary's answer is wrong".into(), call: "cuLaunchKernelEx" }
    }
}
