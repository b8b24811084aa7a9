//! Blocks written out turned before a kernel that takes them in order: what lets every kernel do Aᵀ·B.
//!
//! The scratch is of the stored blocks' size, one for each stream; nothing is remembered between launches, so nothing
//! can be stale. It costs one reading and one writing of the blocks (a tenth of the product at an eighth full).

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use warplap_core::rejection::Rejection;
use warplap_cuda::{Cuda, Function, LaunchShape, Source, Stream};

use crate::bsr::slot::{PLACE, VALUES};
use crate::bsr::{BsrProblem, SLOTS};
use crate::cuda::scratch::{Need, Scratch};

/// The kernel's text.
pub(super) const TEXT: &str = include_str!("turn.cu");

/// What is compiled.
pub(super) fn source(p: &BsrProblem) -> Source {
    let defines = vec![("BS", p.bs as i64), ("BC", p.bc as i64), ("SIZE", p.dtype.bytes() as i64)];
    Source { entry: "turn", text: TEXT, headers: &[], defines }
}

/// Turns blocks where a problem asks for it.
pub(super) struct Turned(Option<Turning>);

struct Turning {
    function: Function,
    shape: LaunchShape,
    bytes: u64,
    scratch: Scratch,
    /// Held while a launch is queued: no other one comes between the turning and what reads it.
    queueing: Mutex<()>,
}

impl Turned {
    /// Nothing is turned.
    pub(super) fn none() -> Self {
        Turned(None)
    }

    /// Compiles what [`Turned::new`] loads.
    pub(super) fn compile(p: &BsrProblem, cuda: &Cuda) -> Result<(), Rejection> {
        if p.turned && p.nnz > 0 { cuda.compile(&source(p)) } else { Ok(()) }
    }

    /// What a problem needs: nothing where its blocks lie in order.
    pub(super) fn new(p: &BsrProblem, cuda: &Cuda) -> Result<Self, Rejection> {
        if !p.turned || p.nnz == 0 {
            return Ok(Turned::none());
        }
        let over = |_| Rejection::OverLimits { reason: "the grid is too large for a launch".into() };
        let blocks = u32::try_from(p.nnz).map_err(over)?;
        let function = cuda.build(&source(p))?;
        let shape = LaunchShape { grid: [blocks, 1, 1], threads: 256, ..LaunchShape::default() };
        let bytes = Turned::workspace(p);
        let scratch = Scratch::new(Need { words: bytes.div_ceil(4), zeros: 0 });
        Ok(Turned(Some(Turning { function, shape, bytes, scratch, queueing: Mutex::default() })))
    }

    /// Bytes of scratch of one launch.
    pub(super) fn workspace(p: &BsrProblem) -> u64 {
        if p.turned { (p.values_len() * p.dtype.bytes()) as u64 } else { 0 }
    }

    /// The same of what was built.
    pub(super) fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, |turning| turning.bytes)
    }

    /// Runs a body with the address of the blocks in order. What the body queues comes after the turning, and no other
    /// launch of this kernel comes between them.
    pub(super) fn with<R>(
        &self,
        slots: &[u64; SLOTS],
        queue: &Stream,
        body: impl FnOnce(u64) -> Result<R, Rejection>,
    ) -> Result<R, Rejection> {
        let Some(turning) = &self.0 else { return body(slots[VALUES]) };
        let _one = turning.queueing.lock().unwrap_or_else(PoisonError::into_inner);
        let room = turning.scratch.address(queue)?;
        let list = [&slots[VALUES], &room, &slots[PLACE]].map(|a| (&raw const *a).cast::<c_void>());
        // SAFETY: three addresses, as the entry declares them; the catalog hands out kernels that refuse other
        // arguments than the signature's, the scratch is as long as the values, and the user vouches for the places.
        unsafe { turning.function.launch(&turning.shape, &list, queue) }.map_err(|e| e.rejection())?;
        body(room)
    }
}
