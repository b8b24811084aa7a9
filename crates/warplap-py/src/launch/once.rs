//! One launch of a user's CUDA kernel and nothing else: its source, sizes and arguments come in as plain bytes; what
//! the buffers hold afterwards goes out. It runs in this process: whoever asks for it has made one for it.

use std::ffi::c_void;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use warplap::core::array::Array;
use warplap::core::rejection::Rejection;
use warplap::cuda::{Buffer, CudaError, LaunchShape, OwnSource, Stream};

use crate::launch::gpu;

/// Bytes of a number that is given by value, at the most.
const WIDEST: usize = 16;

/// An argument: whether it is a buffer, and its bytes.
type RawArgument = (bool, PyBackedBytes);

/// What was refused, as `RuntimeError(word, reason)`.
fn refused(rejection: &Rejection) -> PyErr {
    PyRuntimeError::new_err((rejection.word(), rejection.to_string()))
}

fn failed(error: CudaError) -> PyErr {
    refused(&error.rejection())
}

/// Builds a kernel with the contents of constant memory, says so to `built`, launches it once and gives the bytes of
/// its buffers afterwards: one for each argument, nothing for a number.
#[pyfunction]
#[pyo3(signature = (text, entry, options, grid, block, shared, arguments, constants, built, *, gpu=0))]
#[expect(clippy::too_many_arguments, reason = "a Python function")]
pub(crate) fn run_once<'py>(
    py: Python<'py>,
    text: String,
    entry: String,
    options: Vec<String>,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    arguments: Vec<RawArgument>,
    constants: Vec<(String, PyBackedBytes)>,
    built: &Bound<'py, PyAny>,
    gpu: usize,
) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
    if let Some((_, number)) = arguments.iter().find(|(buffer, bytes)| !buffer && bytes.len() > WIDEST) {
        let answer = number.len();
        return Err(PyValueError::new_err(format!("arguments: a number of {answer} bytes, expected at most {WIDEST}")));
    }
    let device = gpu::device(gpu)?;
    let globals: Vec<(&str, &[u8])> = constants.iter().map(|(name, bytes)| (&name[..], &bytes[..])).collect();
    let source = OwnSource { entry, text, headers: Vec::new(), options };
    let function = device.build_own_with(&source, &globals).map_err(|e| refused(&e))?;
    function.allow_shared(shared).map_err(failed)?;
    let stream = device.stream();
    let buffers = arguments.iter().map(|(buffer, bytes)| buffer.then(|| upload(stream, bytes)).transpose());
    let buffers = buffers.collect::<Result<Vec<Option<Buffer>>, _>>().map_err(failed)?;
    built.call0()?;

    let value = |(buffer, (_, bytes)): (&Option<Buffer>, &RawArgument)| {
        let mut value = [0; WIDEST];
        match buffer {
            Some(buffer) => value[..8].copy_from_slice(&buffer.address().to_ne_bytes()),
            None => value[..bytes.len()].copy_from_slice(bytes),
        }
        u128::from_ne_bytes(value)
    };
    let values: Vec<u128> = buffers.iter().zip(&arguments).map(value).collect();
    let pointers: Vec<*const c_void> = values.iter().map(|v| (&raw const *v).cast()).collect();
    let threads = block.iter().fold(1u32, |all, size| all.saturating_mul(*size));
    let shape = LaunchShape { grid, threads, shared, ..LaunchShape::default() };
    // SAFETY: addresses of buffers that live until the stream was waited for, and numbers, each at the start of bytes
    // that are aligned for any. Whether they are what the kernel takes is the caller's word: a user's kernel cannot be
    // asked, and this process is there for it alone.
    unsafe { function.launch_in(&shape, block, &pointers, stream) }.map_err(failed)?;
    stream.synchronize().map_err(failed)?;
    let after = |(buffer, (_, bytes)): (&Option<Buffer>, &RawArgument)| {
        let held = buffer.as_ref().map(|buffer| stream.read_buffer(buffer).map_err(failed)).transpose()?;
        Ok(held.map(|held| PyBytes::new(py, &plain(&held)[..bytes.len()])))
    };
    buffers.iter().zip(&arguments).map(after).collect()
}

/// A buffer that begins with these bytes: whole numbers of four, one at least.
fn upload(stream: &Stream, bytes: &[u8]) -> Result<Buffer, CudaError> {
    let whole = bytes.len().next_multiple_of(4).max(4);
    let mut words = vec![0i32; whole / 4];
    for (to, from) in words.iter_mut().zip(bytes.chunks(4)) {
        let mut word = [0; 4];
        word[..from.len()].copy_from_slice(from);
        *to = i32::from_ne_bytes(word);
    }
    stream.upload(&Array::I32(words))
}

fn plain(held: &Array) -> Vec<u8> {
    match held {
        Array::I32(words) => words.iter().flat_map(|w| w.to_ne_bytes()).collect(),
        _ => Vec::new(),
    }
}
