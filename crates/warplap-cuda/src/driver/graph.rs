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
