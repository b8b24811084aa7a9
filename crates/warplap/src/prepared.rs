//! Prepared kernels: what a caller keeps so that launching does no lookup at all.

use std::sync::Arc;

use warplap_core::candidate::Candidate;
use warplap_core::device::Device;
use warplap_core::error::Error;
use warplap_core::op::Op;
use warplap_core::tuner::{Chosen, How, Tuner};
use warplap_core::variant::Kernel;
use warplap_cpu::Cpu;
use warplap_ops::attention::{Attention, AttentionProblem};
use warplap_ops::bsr::{Bsr, BsrProblem};
use warplap_ops::gemm::{Gemm, GemmProblem};
use warplap_ops::sampled::{Sampled, SampledProblem};

use crate::Session;
use crate::races::Equipped;

/// A kernel of choice, built for exactly one problem.
pub struct Prepared<O: Op, D: Device = Cpu> {
    kernel: Arc<dyn Kernel<O, D>>,
    candidate: Candidate,
    how: How,
}

impl<O: Op, D: Device> Prepared<O, D> {
    /// Queues one run. The buffers must be those of the problem it was prepared for; kernels check their lengths.
    #[inline]
    pub fn launch_on(&self, args: O::Args<'_, D>, queue: &D::Queue) -> Result<(), Error> {
        self.kernel.launch(args, queue).map_err(|rejection| Error::Launch { problem: O::NAME.into(), rejection })
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

impl<O: Op> Prepared<O, Cpu> {
    /// Runs it. The buffers must be those of the problem it was prepared for; kernels check their lengths.
    #[inline]
    pub fn launch(&self, args: O::Args<'_, Cpu>) -> Result<(), Error> {
        self.launch_on(args, &())
    }
}

impl<O: Op, D: Device> From<Chosen<O, D>> for Prepared<O, D> {
    fn from(chosen: Chosen<O, D>) -> Self {
        Prepared { kernel: chosen.kernel, candidate: chosen.candidate, how: chosen.how }
    }
}

/// A problem that a session can be asked about.
pub trait Asked: Sized {
    /// Its operation.
    type Op: Op<Problem = Self>;
    /// The session's tuner of that operation.
    fn tuner<D: Equipped>(session: &Session<D>) -> &Tuner<Self::Op, D>;
}

impl Asked for GemmProblem {
    type Op = Gemm;
    fn tuner<D: Equipped>(session: &Session<D>) -> &Tuner<Gemm, D> {
        session.gemm_tuner()
    }
}

impl Asked for AttentionProblem {
    type Op = Attention;
    fn tuner<D: Equipped>(session: &Session<D>) -> &Tuner<Attention, D> {
        session.attention_tuner()
    }
}

impl Asked for SampledProblem {
    type Op = Sampled;
    fn tuner<D: Equipped>(session: &Session<D>) -> &Tuner<Sampled, D> {
        session.sampled_tuner()
    }
}

impl Asked for BsrProblem {
    type Op = Bsr;
    fn tuner<D: Equipped>(session: &Session<D>) -> &Tuner<Bsr, D> {
        session.bsr_tuner()
    }
}
