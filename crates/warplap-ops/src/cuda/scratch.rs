//! Scratch of a kernel: memory for each stream it is launched on, made when a stream is first seen. Launches on one
//! stream follow each other, so one room serves them all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use warplap_core::array::Array;
use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_cuda::{Buffer, Stream};

/// How much a kernel needs. The words in front are zero when it is made, and every launch leaves them so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    /// Words of 4 bytes in all.
    pub(crate) words: u64,
    /// How many of them, from the first on, are zero.
    pub(crate) zeros: u64,
}

/// The rooms of a kernel, by stream.
pub(crate) struct Scratch {
    need: Need,
    rooms: Mutex<Vec<(usize, Buffer)>>,
    // Whether somebody's graph holds their addresses.
    captured: AtomicBool,
}

impl Scratch {
    pub(crate) fn new(need: Need) -> Self {
        Scratch { need, rooms: Mutex::default(), captured: AtomicBool::new(false) }
    }

    /// The address of a stream's room; zero where none is needed.
    pub(crate) fn address(&self, queue: &Stream) -> Result<u64, Rejection> {
        if self.need.words == 0 {
            return Ok(0);
        }
        if queue.is_captured_by_others() {
            self.captured.store(true, Ordering::Relaxed);
        }
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, room)) = rooms.iter().find(|(stream, _)| *stream == queue.handle()) {
            return Ok(room.address());
        }
        let zeros = Array::filled(DType::I32, self.need.zeros as usize, 0.0);
        let room = queue.alloc_begun(self.need.words as usize, &zeros).map_err(|e| e.rejection())?;
        let address = room.address();
        rooms.push((queue.handle(), room));
        Ok(address)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A graph may be replayed long after.
        if *self.captured.get_mut() {
            let rooms = self.rooms.get_mut().unwrap_or_else(PoisonError::into_inner);
            rooms.drain(..).for_each(std::mem::forget);
        }
    }
}
