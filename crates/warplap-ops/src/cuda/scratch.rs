//! Scratch of a kernel: memory for each stream it is launched on, and for each capture, made when one is first seen.

use warplap_core::array::Array;
use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_cuda::{Stream, Workspaces};

/// How much a kernel needs. The words in front are zero when it is made, and every launch leaves them so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    /// Words of 4 bytes in all.
    pub(crate) words: u64,
    /// How many of them, from the first on, are zero.
    pub(crate) zeros: u64,
}

/// The rooms of a kernel.
pub(crate) struct Scratch {
    need: Need,
    rooms: Workspaces,
}

impl Scratch {
    pub(crate) fn new(need: Need) -> Self {
        Scratch { need, rooms: Workspaces::default() }
    }

    /// The address of a stream's room; zero where none is needed.
    pub(crate) fn address(&self, queue: &Stream) -> Result<u64, Rejection> {
        if self.need.words == 0 {
            return Ok(0);
        }
        let words = self.need.words as usize;
        self.rooms.address(queue, words, || {
            let zeros = Array::filled(DType::I32, self.need.zeros as usize, 0.0);
            queue.alloc_begun(words, &zeros).map_err(|e| e.rejection())
        })
    }
}
