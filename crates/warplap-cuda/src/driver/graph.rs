//! Graphs: launches captured once and replayed with one call.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::api::Handle;
use super::context::Context;
use super::stream::Stream;
use crate::error::CudaError;

/// A captured and instantiated graph.
pub(crate) struct Graph {
    context: Arc<Context>,
    exec: Handle,
}

impl Graph {
    /// Captures what `launches` queues. The capture is always ended, also where a launch fails.
    pub(crate) fn capture<E: From<CudaError>>(
        stream: &Stream,
        launches: impl FnOnce() -> Result<(), E>,
    ) -> Result<Self, E> {
        let context = stream.context.clone();
        let api = context.api()?;
        // SAFETY: the stream is alive; 1 is CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: other threads go on undisturbed.
        unsafe { api.stream_begin_capture(stream.handle, 1) }?;
        stream.rehearses.store(true, Ordering::Relaxed);
        let queued = launches();
        stream.rehearses.store(false, Ordering::Relaxed);
        let (mut graph, mut exec) = (0, 0);
        // SAFETY: ends the capture begun above; the pointer is to a local.
        let ended = unsafe { api.stream_end_capture(stream.handle, &mut graph) };
        if let Err(error) = queued {
            if graph != 0 {
                // SAFETY: the graph is ours and used by nobody.
                let _ = unsafe { api.graph_destroy(graph) };
            }
            return Err(error);
        }
        ended?;
        // SAFETY: the graph was just captured; the instance does not need it any more.
        let instantiated = unsafe {
            let instantiated = api.graph_instantiate(&mut exec, graph, 0);
            let _ = api.graph_destroy(graph);
            instantiated
        };
        instantiated?;
        Ok(Graph { context, exec })
    }

    /// Replays it.
    pub(crate) fn launch(&self, stream: &Stream) -> Result<(), CudaError> {
        let api = self.context.api()?;
        // SAFETY: both are alive.
        self.context.note(unsafe { api.graph_launch(self.exec, stream.handle) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let Ok(api) = self.context.api() {
            // SAFETY: instantiated in `capture`, destroyed once.
            let _ = unsafe { api.graph_exec_destroy(self.exec) };
        }
    }
}

/// While it lives, calls of this thread that a capture would refuse (loading, allocating) are let through and are no part
/// of it: what is built then belongs to no stream.
pub(crate) struct Relaxed<'c> {
    context: &'c Context,
    before: Option<i32>,
}

impl<'c> Relaxed<'c> {
    pub(crate) fn new(context: &'c Context) -> Self {
        // 2 is CU_STREAM_CAPTURE_MODE_RELAXED.
        Relaxed { context, before: exchange(context, 2) }
    }
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            exchange(self.context, before);
        }
    }
}

/// Sets the thread's capture mode and gives the one before.
fn exchange(context: &Context, mut mode: i32) -> Option<i32> {
    let api = context.api().ok()?;
    // SAFETY: the pointer is to a local.
    unsafe { api.thread_capture_mode(&mut mode) }.ok().map(|()| mode)
}
