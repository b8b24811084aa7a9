//! The queue that blocks of threads take tiles from: two counters, which every launch leaves at zero.

use warplap_core::rejection::Rejection;
use warplap_cuda::Stream;

use crate::cuda::scratch::{Need, Scratch};

/// The queues of a kernel, where it has any.
pub(super) struct Queue(Scratch);

impl Queue {
    /// Queues for a kernel that takes tiles from one.
    pub(super) fn new(wanted: bool) -> Self {
        let counters = if wanted { 2 } else { 0 };
        Queue(Scratch::new(Need { words: counters, zeros: counters }))
    }

    /// The address of a stream's queue.
    pub(super) fn address(&self, queue: &Stream) -> Result<u64, Rejection> {
        self.0.address(queue)
    }
}
