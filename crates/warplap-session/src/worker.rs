//! The worker: a program that was started to prove CUDA candidates for another process does so and nothing else.
//!
//! CUDA candidates run in a process of their own until they have passed, so that a bad one harms nobody. That process
//! is this program again, started anew, and so it must say at the top of its `main` that it serves:
//!
//! ```no_run
//! warplap::worker::serve_if_asked();
//! // … and then the program itself.
//! ```
//!
//! A program that does not say so uses the program `warplap` beside it, or the one `WARPLAP_WORKER` names. Where there
//! is no worker at all only the reference and official libraries are raced; `WARPLAP_SANDBOX=off` lets every candidate
//! run in the caller's process.

use warplap_core::catalog::Catalog;
use warplap_core::op::Op;
use warplap_cuda::{Cuda, Ground};

use crate::any::operations;

/// Serves as a worker and never returns, if this process was started as one; else returns at once.
pub fn serve_if_asked() {
    Worker::new().serve_if_asked();
}

/// What a worker can prove: the operations of this crate, and the program's own.
pub struct Worker {
    grounds: Vec<Ground>,
}

impl Worker {
    /// A worker for the operations of this crate.
    pub fn new() -> Self {
        Worker { grounds: operations().iter().map(|op| op.ground()).collect() }
    }

    /// And for an operation of the program's own, or for one of this crate with the program's own variants. The catalog
    /// must be the one the program races.
    pub fn with<O: Op>(mut self, catalog: impl Fn() -> Catalog<O, Cuda> + 'static) -> Self {
        // The last one counts.
        self.grounds.insert(0, Ground::of(catalog));
        self
    }

    /// And on a proving ground of the program's own making.
    pub fn with_ground(mut self, ground: Ground) -> Self {
        self.grounds.insert(0, ground);
        self
    }

    /// Serves as a worker and never returns, if this process was started as one; else returns at once.
    pub fn serve_if_asked(&self) {
        warplap_cuda::serve_if_asked(&self.grounds);
    }
}

impl Default for Worker {
    fn default() -> Self {
        Self::new()
    }
}
