//! Prepared kernels: what a caller keeps so that launching does no lookup at all.

use std::sync::Arc;

use warplap_core::arg::Arg;
use warplap_core::candidate::Candidate;
use warplap_core::device::Device;
use warplap_core::engine::{Chosen, How};
use warplap_core::error::Error;
use warplap_core::variant::Kernel;
use warplap_cpu::Cpu;

/// A kernel of choice, built for exactly one problem.
pub struct Prepared<D: Device = Cpu> {
    kernel: Arc<dyn Kernel<D>>,
    candidate: Candidate,
    how: How,
    problem: Arc<str>,
}

impl<D: Device> Prepared<D> {
    pub(crate) fn new(chosen: Chosen<D>, problem: String) -> Self {
        Prepared { kernel: chosen.kernel, candidate: chosen.candidate, how: chosen.how, problem: problem.into() }
    }

    /// Queues one run, on one argument a slot of the problem's signature; others are refused.
    #[inline]
    pub fn launch_on(&self, args: &mut [Arg<'_, D>], queue: &D::Queue) -> Result<(), Error> {
        let failed = |rejection| Error::Launch { problem: self.problem.to_string(), rejection };
        self.kernel.launch(args, queue).map_err(failed)
    }

    /// Who it is.
    pub fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    /// How it was chosen.
    pub fn how(&self) -> &How {
        &self.how
    }
}

impl Prepared<Cpu> {
    /// Runs it.
    #[inline]
    pub fn launch(&self, args: &mut [Arg<'_, Cpu>]) -> Result<(), Error> {
        self.launch_on(args, &())
    }
}
