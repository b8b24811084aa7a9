//! Captures of somebody else's: which graph launches go into, and when that graph is gone.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::api::Handle;
use super::context::Context;
use super::stream::Stream;

/// The number of a capture that the driver says nothing of.
const UNKNOWN: u64 = u64::MAX;

/// A capture that is going on, into a graph that may be replayed when this crate's objects are long gone.
pub(crate) struct Captured<'s> {
    context: &'s Context,
    /// Its number in this process, never 0.
    pub(crate) id: u64,
    graph: Handle,
}

impl Stream {
    /// The capture that somebody else has going on here.
    pub(crate) fn captured(&self) -> Option<Captured<'_>> {
        if self.is_timed() {
            return None;
        }
        let context = &*self.context;
        let (mut status, mut id, mut graph) = (0, UNKNOWN, 0);
        let asked = context.api().and_then(|api| {
            // SAFETY: the stream is alive, pointers are to locals; the driver takes null for what nobody asks.
            context.note(unsafe {
                api.stream_capture(self.handle, &mut status, &mut id, &mut graph, null_mut(), null_mut())
            })
        });
        // What cannot be asked may be captured.
        (asked.is_err() || status != 0).then_some(Captured { context, id, graph })
    }
}

impl Captured<'_> {
    /// A flag that is raised when the graph and all that was made of it are gone; never, where the driver does not say.
    pub(crate) fn watch(&self) -> Arc<AtomicBool> {
        let ended = Arc::new(AtomicBool::new(false));
        let Ok(api) = self.context.api() else { return ended };
        if self.id == UNKNOWN {
            return ended;
        }
        let (held, mut object) = (Arc::into_raw(ended.clone()).cast_mut().cast::<c_void>(), 0);
        // SAFETY: the pointer is to a local; `raise` takes over what `held` counts. The graph is being captured, so it
        // is alive; it takes over the object's one reference. 1 is CU_USER_OBJECT_NO_DESTRUCTOR_SYNC, then
        // CU_GRAPH_USER_OBJECT_MOVE.
        unsafe {
            if api.object_create(&mut object, held, raise, 1, 1).is_err() {
                drop(Arc::from_raw(held.cast::<AtomicBool>()));
            } else {
                // An object that no graph takes stays, and so does the room.
                let _ = api.graph_retain(self.graph, object, 1, 1);
            }
        }
        ended
    }
}

/// Called by the driver, on a thread of its own that may not call it.
extern "C" fn raise(held: *mut c_void) {
    // SAFETY: made by `into_raw` in `watch`, called once.
    unsafe { Arc::from_raw(held.cast::<AtomicBool>()) }.store(true, Ordering::Release);
}
