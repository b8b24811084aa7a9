//! Validation of indices where they lie: one pass on the device, one word home. Only a matrix that is wrong is read
//! back, so that the error can name the place.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use warplap_core::arg::Arg;
use warplap_core::array::Array;
use warplap_core::error::Error;
use warplap_core::op::Op;
use warplap_cuda::{Cuda, CudaError, Function, LaunchShape, Source, Stream};

use crate::bsr::slot::{COL_IDX, PLACE, ROW_PTR};
use crate::bsr::{Bsr, BsrProblem, validate, validate_places};

/// What is compiled.
pub(super) fn source() -> Source {
    Source { entry: "check", text: include_str!("check.cu"), headers: &[], defines: Vec::new() }
}

/// The check of one device, compiled once.
#[derive(Debug)]
pub struct IndexCheck(Function);

impl IndexCheck {
    /// The check of a device, compiled when it is first asked for.
    pub fn of(cuda: &Cuda) -> Result<Arc<Self>, Error> {
        static KNOWN: Mutex<Vec<(i32, Arc<IndexCheck>)>> = Mutex::new(Vec::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, check)) = known.iter().find(|(ordinal, _)| *ordinal == cuda.ordinal()) {
            return Ok(check.clone());
        }
        let check = Arc::new(Self::new(cuda)?);
        known.push((cuda.ordinal(), check.clone()));
        Ok(check)
    }

    /// Compiles the check for a device.
    pub fn new(cuda: &Cuda) -> Result<Self, Error> {
        cuda.build(&source()).map(IndexCheck).map_err(|e| Error::Device(e.to_string()))
    }

    /// Checks that arguments are those of the problem and that the indices among them are a block-sparse matrix: rising
    /// row pointers, columns in range, in order and without duplicates, blocks in places of their own. Waits for the
    /// stream, so it is not for a stream that is being captured; a caller who knows the matrix need not ask.
    pub fn check(&self, p: &BsrProblem, args: &[Arg<'_, Cuda>], queue: &Stream) -> Result<(), Error> {
        Bsr::signature(p).check(args)?;
        let device = |e: CudaError| Error::Device(e.to_string());
        let address = |slot: usize| args[slot].view().map_or(0, |view| view.address());
        let place = address(PLACE);
        let words = 1 + if place == 0 { 0 } else { (p.nnz as usize).div_ceil(32) };
        let flags = queue.upload(&Array::I32(vec![0; words])).map_err(device)?;
        let sizes = [p.rows(), p.columns(), p.nnz as usize].map(|size| i32::try_from(size).unwrap_or(i32::MAX));
        let at = [address(ROW_PTR), address(COL_IDX), place, flags.address()];
        let list: Vec<*const c_void> =
            at.iter().map(|a| (&raw const *a).cast()).chain(sizes.iter().map(|s| (&raw const *s).cast())).collect();
        let blocks = (p.rows() as u32).div_ceil(8).clamp(1, 1024);
        let shape = LaunchShape { grid: [blocks, 1, 1], threads: 256, ..LaunchShape::default() };
        // SAFETY: four addresses and three numbers, as the entry declares them; the lists were checked to be as long as
        // the problem says, and the kernel reads nothing beyond.
        unsafe { self.0.launch(&shape, &list, queue) }.map_err(device)?;
        let answer = queue.read_buffer(&flags).map_err(device)?;
        if answer.indices().and_then(|words| words.first()) == Some(&0) {
            return Ok(());
        }
        read_back(p, args, queue)
    }
}

/// Names what is wrong.
fn read_back(p: &BsrProblem, args: &[Arg<'_, Cuda>], queue: &Stream) -> Result<(), Error> {
    let read = |slot: usize| match args[slot].view() {
        Some(view) => queue.read(&view).map_err(|e: CudaError| Error::Device(e.to_string())),
        None => Ok(Array::none()),
    };
    let (rows, columns) = (read(ROW_PTR)?, read(COL_IDX)?);
    let (row_ptr, col_idx) = (rows.indices().unwrap_or(&[]), columns.indices().unwrap_or(&[]));
    // Buffers may be longer than the matrix.
    let (row_ptr, col_idx) = (&row_ptr[..p.rows() + 1], &col_idx[..p.nnz as usize]);
    validate(row_ptr, col_idx, p.values_len(), p)?;
    if p.turned {
        validate_places(read(PLACE)?.indices().unwrap_or(&[]), p)?;
    }
    Ok(())
}
