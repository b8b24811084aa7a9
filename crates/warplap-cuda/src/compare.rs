//! Compare: an output and a right answer on the device come in; the largest share of the allowed error goes out, and
//! seals of what memory holds. Nothing but two numbers a block comes home.

use std::ffi::c_void;

use warplap_core::array::Array;
use warplap_core::device::{Bounds, Compared};
use warplap_core::dtype::DType;
use warplap_core::error::Error;

use crate::compile::Source;
use crate::device::Cuda;
use crate::driver::LaunchShape;
use crate::memory::Buffer;

const THREADS: u32 = 256;

/// Blocks of a multiprocessor: enough to keep memory busy.
const BLOCKS: u32 = 8;

fn source(part: i64, dtype: DType) -> Source {
    Source {
        entry: "compare",
        text: include_str!("../cu/compare.cu"),
        headers: &[crate::ELEMENT, crate::compile::cuh::MIXED],
        defines: vec![("PART", part), ("DTYPE", crate::dtype_code(dtype))],
    }
}

/// Every form of the kernel, for the test that compiles them.
pub(crate) fn sources() -> Vec<Source> {
    [0, 1].into_iter().flat_map(|part| DType::ALL.map(|dtype| source(part, dtype))).collect()
}

impl Cuda {
    pub(crate) fn compare_there(&self, output: &Buffer, right: &Buffer, bounds: Bounds) -> Result<Compared, Error> {
        let len = right.len;
        if right.dtype != DType::F64 || output.len != len + 2 * bounds.guard {
            let (o, r) = (output.dtype, right.dtype);
            return Err(Error::Device(format!("{} {o} are not compared with {len} {r} here", output.len)));
        }
        let (len, guard) = (len as u64, bounds.guard as u64);
        let (relative, floor) = (bounds.tolerance.relative, bounds.tolerance.floor);
        // The band holds what the guard's value is in the output's type.
        let band = Array::filled(output.dtype, 1, bounds.guard_value).at(0);
        let arguments: [*const c_void; 7] = [
            (&raw const output.address).cast(),
            (&raw const right.address).cast(),
            (&raw const len).cast(),
            (&raw const guard).cast(),
            (&raw const band).cast(),
            (&raw const relative).cast(),
            (&raw const floor).cast(),
        ];
        // SAFETY: the entry's parameters in order; the output holds `len` elements between two bands, the answer `len`.
        unsafe { self.reduced(&source(0, output.dtype), &arguments) }
    }

    pub(crate) fn seal_of(&self, buffer: &Buffer) -> Result<u64, Error> {
        let len = buffer.len as u64;
        let arguments: [*const c_void; 2] = [(&raw const buffer.address).cast(), (&raw const len).cast()];
        // SAFETY: the entry's parameters in order; the buffer holds `len` elements of the width it is compiled for.
        unsafe { self.reduced(&source(1, buffer.dtype), &arguments) }.map(|compared| compared.seal)
    }

    /// Launches a kernel whose last parameter takes two numbers a block, and adds them up.
    ///
    /// # Safety
    /// The arguments are the entry's parameters but the last.
    unsafe fn reduced(&self, source: &Source, arguments: &[*const c_void]) -> Result<Compared, Error> {
        let function = self.build(source).map_err(|e| Error::Device(format!("the comparison was not built: {e}")))?;
        let blocks = BLOCKS * self.chip().multiprocessors.max(1);
        let out = self.alloc_queued(DType::F64, 2 * blocks as usize)?;
        let mut all = arguments.to_vec();
        all.push((&raw const out.address).cast());
        let shape = LaunchShape { grid: [blocks, 1, 1], threads: THREADS, ..LaunchShape::default() };
        // SAFETY: the caller's word, and two numbers for every block.
        unsafe { function.launch(&shape, &all, self.stream()) }?;
        let Array::F64(parts) = out.read(self.stream())? else {
            return Err(Error::Device("a buffer of f64 gave something else".into()));
        };
        let share = parts.iter().step_by(2).copied().fold(0.0, f64::max);
        let seal = parts.iter().skip(1).step_by(2).fold(0u64, |sum, part| sum.wrapping_add(part.to_bits()));
        Ok(Compared { share, seal })
    }
}
