//! Rooms: device memory that launches share because they follow each other. A stream comes in; the address of its room
//! goes out, made when the stream is first seen.
//!
//! Launches on one stream follow each other, so one room serves them all. What somebody captures does not: two graphs
//! captured on one stream may be replayed side by side. So every capture has a room of its own on each of its streams,
//! and keeps it for as long as its graph may be replayed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::driver::Stream;
use crate::memory::Buffer;

/// The rooms of one kernel.
#[derive(Debug, Default)]
pub struct Workspaces(Mutex<Vec<Workspace>>);

#[derive(Debug)]
struct Workspace {
    /// The stream, and the number of the capture on it: 0 where there is none.
    of: (usize, u64),
    buffer: Option<Buffer>,
    /// Raised when the graph is gone; `None` where it is no graph's.
    ended: Option<Arc<AtomicBool>>,
}

impl Workspace {
    fn is_replayable(&self) -> bool {
        self.ended.as_ref().is_some_and(|ended| !ended.load(Ordering::Acquire))
    }

    fn holds(&self, len: usize) -> Option<u64> {
        self.buffer.as_ref().filter(|buffer| buffer.len >= len).map(|buffer| buffer.address)
    }
}

impl Workspaces {
    /// The address of a stream's room of at least so many elements; `make` is asked for one where there is none. What a
    /// room holds at first is what `make` wrote, or what the last launch of a graph that is gone has left.
    pub fn address<E>(&self, stream: &Stream, len: usize, make: impl FnOnce() -> Result<Buffer, E>) -> Result<u64, E> {
        let capture = stream.captured();
        let of = (stream.handle(), capture.as_ref().map_or(0, |capture| capture.id));
        let mut workspaces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(address) = workspaces.iter().filter(|room| room.of == of).find_map(|room| room.holds(len)) {
            return Ok(address);
        }
        let ended = capture.map(|capture| capture.watch());
        let left = |room: &&mut Workspace| room.ended.is_some() && !room.is_replayable();
        if let Some((room, address)) =
            workspaces.iter_mut().filter(left).find_map(|room| room.holds(len).map(|address| (room, address)))
        {
            (room.of, room.ended) = (of, ended);
            return Ok(address);
        }
        let buffer = make()?;
        let address = buffer.address;
        // One that was too small stays: a launch before this one may still use it.
        workspaces.push(Workspace { of, buffer: Some(buffer), ended });
        Ok(address)
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // A graph may be replayed long after.
        if self.is_replayable() {
            std::mem::forget(self.buffer.take());
        }
    }
}
