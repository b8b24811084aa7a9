//! The queue that blocks of threads take tiles from: two counters for each stream, which every launch leaves at zero.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use warplap_core::array::Array;
use warplap_core::rejection::Rejection;
use warplap_cuda::{Buffer, Stream};

/// The queues of a kernel, where it has any.
pub(super) struct Queue(Option<Mutex<HashMap<usize, Buffer>>>);

impl Queue {
    /// Queues for a kernel that takes tiles from one.
    pub(super) fn new(wanted: bool) -> Self {
        Queue(wanted.then(Mutex::default))
    }

    /// The address of a stream's queue, made when the stream is first seen; launches on one stream follow each other.
    pub(super) fn address(&self, queue: &Stream) -> Result<u64, Rejection> {
        let Some(known) = &self.0 else { return Ok(0) };
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counters) = known.get(&queue.handle()) {
            return Ok(counters.address());
        }
        let counters = queue.upload(&Array::I32(vec![0; 2])).map_err(|e| e.rejection())?;
        let address = counters.address();
        known.insert(queue.handle(), counters);
        Ok(address)
    }
}
