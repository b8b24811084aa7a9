//! Validation of indices where they lie: one pass on the device, one word home. Only a matrix that is wrong is read back, so
//! that the error can name the place.

use std::ffi::c_void;

use warplap_core::array::Array;
use warplap_core::error::Error;
use warplap_cuda::{Cuda, CudaError, Function, LaunchShape, Source, Stream};

use crate::bsr::{BsrArgs, BsrError, validate, validate_places};

/// What is compiled.
pub(super) fn source() -> Source {
    Source { entry: "check", text: include_str!("check.cu"), headers: &[], defines: Vec::new() }
}

/// The check of one device, compiled once.
#[derive(Debug)]
pub struct IndexCheck(Function);

impl IndexCheck {
    /// Compiles the check for a device.
    pub fn new(cuda: &Cuda) -> Result<Self, Error> {
        cuda.build(&source()).map(IndexCheck).map_err(|e| Error::Device(e.to_string()))
    }

    /// Checks the buffers of a product and that its indices are a block-sparse matrix: rising row pointers, columns in range,
    /// in order and without duplicates, blocks in places of their own. Waits for the stream, so it is not for a stream that
    /// is being captured; a caller who knows the matrix need not ask.
    pub fn check(&self, args: &BsrArgs<'_, Cuda>, queue: &Stream) -> Result<(), Error> {
        args.check_spans()?;
        let p = args.problem;
        let device = |e: CudaError| Error::Device(e.to_string());
        let place = args.place.as_ref().filter(|_| p.turned).map_or(0, |place| place.address());
        let words = 1 + if place == 0 { 0 } else { (p.nnz as usize).div_ceil(32) };
        let found = queue.upload(&Array::I32(vec![0; words])).map_err(device)?;
        let sizes = [p.rows(), p.columns(), p.nnz as usize].map(|size| i32::try_from(size).unwrap_or(i32::MAX));
        let at = [args.row_ptr.address(), args.col_idx.address(), place, found.address()];
        let list: Vec<*const c_void> =
            at.iter().map(|a| (&raw const *a).cast()).chain(sizes.iter().map(|s| (&raw const *s).cast())).collect();
        let blocks = (p.rows() as u32).div_ceil(8).clamp(1, 1024);
        let shape = LaunchShape { grid: [blocks, 1, 1], threads: 256, ..LaunchShape::default() };
        // SAFETY: four addresses and three numbers, as the entry declares them; the lists were checked to be as long as the
        // problem says, and the kernel reads nothing beyond.
        unsafe { self.0.launch(&shape, &list, queue) }.map_err(device)?;
        let answer = queue.read_buffer(&found).map_err(device)?;
        if answer.indices().and_then(|words| words.first()) == Some(&0) {
            return Ok(());
        }
        read_back(args, queue)
    }
}

/// Names what is wrong.
fn read_back(args: &BsrArgs<'_, Cuda>, queue: &Stream) -> Result<(), Error> {
    let p = args.problem;
    let device = |e: CudaError| Error::Device(e.to_string());
    let wrong = |e: BsrError| Error::Argument { argument: e.argument(), reason: e.to_string() };
    let (rows, columns) = (queue.read(&args.row_ptr).map_err(device)?, queue.read(&args.col_idx).map_err(device)?);
    let (row_ptr, col_idx) = (rows.indices().unwrap_or(&[]), columns.indices().unwrap_or(&[]));
    // Buffers may be longer than the matrix.
    let (row_ptr, col_idx) = (&row_ptr[..p.rows() + 1], &col_idx[..p.nnz as usize]);
    validate(row_ptr, col_idx, p.values_len(), p).map_err(wrong)?;
    if let Some(place) = args.place.as_ref().filter(|_| p.turned) {
        let place = queue.read(place).map_err(device)?;
        validate_places(place.indices().unwrap_or(&[]), p).map_err(wrong)?;
    }
    Ok(())
}
