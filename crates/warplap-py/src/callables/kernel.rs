//! A callable on a caller's arguments as a kernel: it brings them along, and judges itself by what a reference left.

use std::sync::Arc;

use pyo3::prelude::*;
use warplap::Arg;
use warplap::core::rejection::Rejection;
use warplap::core::variant::{Kernel, Proof};

use super::{Doors, rejection};
use crate::dlpack::DlDevice;
use crate::lent::Lent;
use crate::pool::Pool;

/// One candidate, ready to run.
pub(super) struct Ready {
    pub(super) doors: Arc<Doors>,
    pub(super) number: usize,
    /// Runs it once.
    pub(super) run: Py<PyAny>,
    pub(super) place: DlDevice,
    pub(super) pool: Pool,
}

impl<D: Lent> Kernel<D> for Ready {
    fn launch(&self, _: &mut [Arg<'_, D>], queue: &D::Queue) -> Result<(), Rejection> {
        let run =
            |py: Python<'_>| D::on_queue(py, queue, self.place, &self.pool, || self.run.bind(py).call0().map(drop));
        self.doors.ask(run)
    }

    fn prove(&self) -> Option<Result<Proof, Rejection>> {
        let asked = |py: Python<'_>| {
            self.doors.prove.bind(py).call1((self.number,))?.extract::<(String, String, f64, Option<f64>)>()
        };
        Some(self.doors.ask(asked).and_then(|(word, reason, number, seconds)| match &*word {
            "right" => Ok(Proof { error: number, seconds: seconds.filter(|_| D::LAUNCH_IS_CALL) }),
            other => Err(rejection(other, reason, number)),
        }))
    }
}
