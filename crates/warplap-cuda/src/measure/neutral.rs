//! The neutral kernel: what a timed launch stands behind, so that a kernel that may begin early finds no launch of its
//! own to begin under. Comes in: a stream, and what of a launch's memory shall change before it. Goes out: one launch of
//! some other work, small and always the same.

use std::ffi::c_void;
use std::time::Duration;

use warplap_core::array::Array;
use warplap_core::dtype::DType;
use warplap_core::perturb_inputs::{PerturbedSpot, Stir};
use warplap_core::rejection::Rejection;

use crate::compile::Source;
use crate::device::Cuda;
use crate::driver::{Function, LaunchShape, Stream};
use crate::error::CudaError;
use crate::memory::Buffer;

const THREADS: u32 = 256;
const BLOCKS: u32 = 256;

/// Spots that one launch stirs at the most; the kernel's own number.
const MOST: usize = 12;

/// As it is compiled.
pub(crate) fn source() -> Source {
    let text = include_str!("../../cu/neutral.cu");
    Source { entry: "neutral", text, headers: &[], defines: Vec::new() }
}

/// The kernel, loaded, and the memory it works on.
pub(crate) struct Neutral {
    function: Function,
    memory: Buffer,
    state: Buffer,
}

/// One spot as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Place {
    at: u64,
    elements: u64,
    bytes: u32,
    kind: u32,
    bits: u64,
}

/// What a launch stirs, as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Spoon {
    state: u64,
    count: u32,
    check: u32,
    places: [Place; MOST],
}

impl Spoon {
    /// One that also looks whether the launch before has written what was poisoned for it.
    pub(crate) fn checking(mut self, check: bool) -> Self {
        self.check = u32::from(check);
        self
    }
}

/// How often outputs of launches were looked at, and how often one was found as it had been poisoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Looked {
    pub(crate) at: i64,
    pub(crate) stale: i64,
}

impl Neutral {
    pub(crate) fn new(cuda: &Cuda) -> Result<Self, Rejection> {
        let function = cuda.build(&source())?;
        let room = |dtype, len| Buffer::new(cuda.context(), dtype, len).map_err(|e| e.rejection());
        let (memory, mut state) = (room(DType::I32, (THREADS * BLOCKS) as usize)?, room(DType::I64, 2 + MOST)?);
        state.fill(&Array::filled(DType::I64, 2 + MOST, 0.0), cuda.stream()).map_err(|e| e.rejection())?;
        Ok(Neutral { function, memory, state })
    }

    /// What stirs these spots, outputs first: where there are too many, none of them goes unwatched for inputs.
    pub(crate) fn spoon(&self, spots: &[PerturbedSpot]) -> Spoon {
        let mut spoon = Spoon { state: self.state.address, count: 0, check: 0, places: [Place::default(); MOST] };
        let is_output = |spot: &&PerturbedSpot| matches!(spot.perturb, Stir::Poison(_));
        let (written, read): (Vec<&PerturbedSpot>, Vec<&PerturbedSpot>) = spots.iter().partition(is_output);
        for (place, spot) in spoon.places.iter_mut().zip(written.into_iter().chain(read)) {
            let (kind, bits) = match spot.perturb {
                Stir::Swap => (1, 0),
                Stir::Poison(bits) => (2, bits),
            };
            *place = Place { at: spot.at, elements: spot.elements as u64, bytes: spot.bytes as u32, kind, bits };
            spoon.count += 1;
        }
        spoon
    }

    /// Queues one launch that stirs.
    pub(crate) fn perturb(&self, spoon: &Spoon, stream: &Stream) -> Result<(), CudaError> {
        self.launch(spoon, Duration::ZERO, stream)
    }

    /// Queues one launch that takes so long at least.
    pub(crate) fn idle(&self, least: Duration, stream: &Stream) -> Result<(), CudaError> {
        self.launch(&self.spoon(&[]), least, stream)
    }

    fn launch(&self, spoon: &Spoon, least: Duration, stream: &Stream) -> Result<(), CudaError> {
        let (at, ns) = (self.memory.address, least.as_nanos() as i64);
        let arguments: [*const c_void; 3] =
            [(&raw const at).cast(), (&raw const ns).cast(), (&raw const *spoon).cast()];
        let shape = LaunchShape { grid: [BLOCKS, 1, 1], threads: THREADS, ..LaunchShape::default() };
        // SAFETY: the entry's parameters in order; the memory holds one number for each thread and lives in this object,
        // which its laps borrow. Spots are of buffers that the lap's launches use, which live as long as it does.
        unsafe { self.function.launch(&shape, &arguments, stream) }
    }

    /// What was seen so far, once everything queued before has run.
    pub(crate) fn looked(&self, stream: &Stream) -> Result<Looked, CudaError> {
        let words = self.state.read(stream)?.to_bytes();
        let word = |i: usize| i64::from_ne_bytes(words[8 * i..8 * i + 8].try_into().unwrap_or_default());
        Ok(Looked { at: word(0), stale: word(1) })
    }
}
