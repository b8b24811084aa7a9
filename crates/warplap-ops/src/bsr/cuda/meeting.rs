//! Where the sums of rows that are shared out meet: scratch for each stream, its counters at zero between launches.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use warplap_core::array::Array;
use warplap_core::dtype::DType;
use warplap_core::rejection::Rejection;
use warplap_cuda::{Buffer, Stream};

/// The scratch of a kernel.
pub(super) struct Meeting {
    floats: u64,
    counters: u64,
    // By stream, made when one is first seen: launches on one stream follow each other.
    rooms: Mutex<HashMap<usize, [Buffer; 2]>>,
}

impl Meeting {
    /// For so many floats and counters; none of both is no scratch.
    pub(super) fn new([floats, counters]: [u64; 2]) -> Self {
        Meeting { floats, counters, rooms: Mutex::default() }
    }

    /// Bytes of one stream's scratch.
    pub(super) fn bytes(&self) -> u64 {
        4 * (self.floats + self.counters)
    }

    /// The addresses of the floats and the counters for a launch on a stream.
    pub(super) fn addresses(&self, queue: &Stream) -> Result<[u64; 2], Rejection> {
        if self.counters == 0 {
            return Ok([0, 0]);
        }
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(room) = rooms.get(&queue.handle()) {
            return Ok(room.each_ref().map(Buffer::address));
        }
        let floats = queue.alloc(DType::F32, self.floats.max(1) as usize).map_err(|e| e.rejection())?;
        let zeros = Array::I32(vec![0; self.counters as usize]);
        let room = [floats, queue.upload(&zeros).map_err(|e| e.rejection())?];
        let addresses = room.each_ref().map(Buffer::address);
        rooms.insert(queue.handle(), room);
        Ok(addresses)
    }
}
