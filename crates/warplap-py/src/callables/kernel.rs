//! A callable on a caller's arguments as a kernel: it brings them along, and judges itself by what a reference left.

use std::sync::Arc;

use pyo3::prelude::*;
use warplap::Arg;
use warplap::core::rejection::Rejection;
use warplap::core::variant::{Kernel, Proof};

use super::{PythonHooks, rejection};
use crate::launch::pool::Pool;
use crate::tensor::dlpack::DlDevice;
use crate::tensor::kernel_argument::LaunchDevice;

/// One candidate, ready to run.
pub(super) struct Ready {
    pub(super) hooks: Arc<PythonHooks>,
    pub(super) number: usize,
    /// Runs it once.
    pub(super) run: Py<PyAny>,
    pub(super) place: DlDevice,
    pub(super) pool: Pool,
}

impl<D: LaunchDevice> Kernel<D> for Ready {
    fn launch(&self, _: &mut [Arg<'_, D>], queue: &D::Queue) -> Result<(), Rejection> {
        let run =
            |py: Python<'_>| D::on_queue(py, queue, self.place, &self.pool, || self.run.bind(py).call0().map(drop));
        self.hooks.ask(run)
    }

    fn prove(&self) -> Option<Result<Proof, Rejection>> {
        let asked = |py: Python<'_>| {
            self.hooks.prove.bind(py).call1((self.number,))?.extract::<(String, String, f64, Option<f64>)>()
        };
        Some(self.hooks.ask(asked).and_then(|(word, reason, number, seconds)| match &*word {
            "right" => Ok(Proof { error: number, seconds: seconds.filter(|_| D::LAUNCH_IS_CALL) }),
            other => Err(rejection(other, reason, number)),
        }))
    }
}
