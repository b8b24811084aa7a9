//! Memory of torch's that is for one kernel alone: a graph that was captured meanwhile names memory that its callable has
//! let go of, and nobody else may have that for as long as the kernel lives. A callable comes in and runs with it.
//!
//! torch's own `MemPool` frees its memory where it ends, and aborts the program where somebody else's pool is in use just
//! then, as Inductor's is while it warms up for a CUDA graph. So a pool here is a number that torch counts uses of, as
//! those of captured graphs are: one that nobody uses any more is freed when torch may, which is when it runs short of
//! memory or is told to empty its cache. Where the caller's thread allocates from a pool of his own, that one comes first.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::{Py, PyAny, intern};

/// A pool of torch's memory on a CUDA device, made when it is first needed.
pub(crate) struct Pool(PyOnceLock<Held>);

/// The use that keeps a pool between two calls.
struct Held {
    device: i32,
    id: Py<PyAny>,
}

impl Pool {
    pub(crate) const fn new() -> Self {
        Pool(PyOnceLock::new())
    }

    /// Runs a callable whose memory on a device comes from here.
    pub(crate) fn lend<R>(&self, py: Python<'_>, device: i32, call: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
        let torch = py.import(intern!(py, "torch._C"))?;
        let make = || Ok::<_, PyErr>(Held { device, id: made(&torch, device)? });
        let id = self.0.get_or_try_init(py, make)?.id.bind(py);
        torch.call_method1(intern!(py, "_cuda_beginAllocateCurrentThreadToPool"), (device, id))?;
        let done = call();
        torch.call_method1(intern!(py, "_cuda_endAllocateToPool"), (device, id))?;
        release(&torch, device, id)?;
        done
    }
}

/// A new pool with one use.
fn made(torch: &Bound<'_, PyModule>, device: i32) -> PyResult<Py<PyAny>> {
    let py = torch.py();
    let id = torch.call_method0(intern!(py, "_graph_pool_handle"))?;
    torch.call_method1(intern!(py, "_cuda_beginAllocateCurrentThreadToPool"), (device, &id))?;
    torch.call_method1(intern!(py, "_cuda_endAllocateToPool"), (device, &id))?;
    Ok(id.unbind())
}

/// Gives up one use.
fn release(torch: &Bound<'_, PyModule>, device: i32, id: &Bound<'_, PyAny>) -> PyResult<()> {
    torch.call_method1(intern!(torch.py(), "_cuda_releasePool"), (device, id)).map(drop)
}

impl Drop for Held {
    fn drop(&mut self) {
        // Nobody could be told of an error, and a program that ends frees all memory.
        let given_up = |py: Python<'_>| release(&py.import(intern!(py, "torch._C"))?, self.device, self.id.bind(py));
        let _ = Python::try_attach(given_up);
    }
}
