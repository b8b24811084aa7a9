//! Doubles: memory on the device comes in; it goes out in double precision, moved by what it may be off by, or as far as
//! it is from other memory. What right answers of chains are made of, without a way home.

use std::ffi::c_void;

use warplap_core::array::Array;
use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::shift::Shift;
use warplap_core::tolerance::Tolerance;

use crate::compile::Source;
use crate::device::Cuda;
use crate::driver::LaunchShape;
use crate::memory::{Buffer, View};

const THREADS: u32 = 256;

/// Blocks of a multiprocessor: enough to keep memory busy.
const BLOCKS: u32 = 8;

/// The types that are widened.
const FLOATS: [DType; 4] = [DType::F16, DType::Bf16, DType::F32, DType::F64];

/// The entries, by the constant `PART`.
const ENTRIES: [&str; 3] = ["widened", "shifted", "distance"];

fn source(part: usize, dtype: DType) -> Source {
    Source {
        entry: ENTRIES[part],
        text: include_str!("../cu/doubles.cu"),
        headers: &[crate::ELEMENT, crate::compile::cuh::MIXED],
        defines: vec![("PART", part as i64), ("DTYPE", crate::dtype_code(dtype))],
    }
}

/// Every form of the kernels, for the test that compiles them.
pub(crate) fn sources() -> Vec<Source> {
    let others = [source(1, DType::F64), source(2, DType::F64)];
    FLOATS.map(|dtype| source(0, dtype)).into_iter().chain(others).collect()
}

impl Cuda {
    pub(crate) fn widened(&self, view: View<'_>) -> Result<Buffer, Error> {
        if !FLOATS.contains(&view.dtype) {
            return Err(Error::Device(format!("{} is not widened here", view.dtype)));
        }
        let wide = self.alloc_queued(DType::F64, view.len)?;
        let words = [view.address, wide.address, view.len as u64];
        // SAFETY: the entry's parameters in order; the view holds so many elements, and the new buffer as many.
        unsafe { self.sweep(&source(0, view.dtype), &words) }?;
        Ok(wide)
    }

    pub(crate) fn shifted(
        &self,
        buffer: &mut Buffer,
        shift: Shift,
        stream: u64,
        tolerance: Tolerance,
    ) -> Result<(), Error> {
        wide(buffer)?;
        let bounds = [tolerance.relative, tolerance.floor].map(f64::to_bits);
        let words = [buffer.address, buffer.len as u64, shift.code(), stream, bounds[0], bounds[1]];
        // SAFETY: the entry's parameters in order; the buffer holds so many doubles and is borrowed to be written.
        unsafe { self.sweep(&source(1, DType::F64), &words) }
    }

    pub(crate) fn distance_of(&self, a: &Buffer, b: &Buffer) -> Result<f64, Error> {
        wide(a)?;
        wide(b)?;
        if a.len != b.len {
            return Err(Error::Device(format!("{} numbers are not compared with {}", a.len, b.len)));
        }
        let mut most = self.alloc_queued(DType::F64, 1)?;
        most.fill(&Array::F64(vec![0.0]), self.stream())?;
        let words = [a.address, b.address, a.len as u64, most.address];
        // SAFETY: the entry's parameters in order; both hold so many doubles, and the last is a word of its own.
        unsafe { self.sweep(&source(2, DType::F64), &words) }?;
        Ok(most.read(self.stream())?.at(0))
    }

    /// Launches a kernel that goes through all elements, with parameters of 64 bits.
    ///
    /// # Safety
    /// The words are the entry's parameters in order, and the addresses are of memory that holds what it goes through.
    unsafe fn sweep(&self, source: &Source, words: &[u64]) -> Result<(), Error> {
        let unbuilt = |why| Error::Device(format!("'{}' was not built: {why}", source.entry));
        let function = self.build(source).map_err(unbuilt)?;
        let arguments: Vec<*const c_void> = words.iter().map(|word| (&raw const *word).cast()).collect();
        let grid = [BLOCKS * self.chip().multiprocessors.max(1), 1, 1];
        let shape = LaunchShape { grid, threads: THREADS, ..LaunchShape::default() };
        // SAFETY: by this function's own contract.
        Ok(unsafe { function.launch(&shape, &arguments, self.stream()) }?)
    }
}

/// Refuses what does not hold doubles.
fn wide(buffer: &Buffer) -> Result<(), Error> {
    match buffer.dtype {
        DType::F64 => Ok(()),
        other => Err(Error::Device(format!("memory holds {other}, expected f64"))),
    }
}
