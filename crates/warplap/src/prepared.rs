//! Prepared kernels: what a caller keeps so that launching does no lookup at all.

use std::sync::Arc;

use warplap_core::candidate::Candidate;
use warplap_core::error::Error;
use warplap_core::op::Op;
use warplap_core::tuner::{Chosen, How, Tuner};
use warplap_core::variant::Kernel;
use warplap_cpu::Cpu;
use warplap_ops::attention::{Attention, AttentionProblem};
use warplap_ops::bsr::{Bsr, BsrProblem};
use warplap_ops::gemm::{Gemm, GemmProblem};

use crate::Session;

/// A kernel of choice, built for exactly one problem.
pub struct Prepared<O: Op> {
    kernel: Arc<dyn Kernel<O, Cpu>>,
    candidate: Candidate,
    how: How,
}

impl<O: Op> Prepared<O> {
    /// Launches it. The buffers must be those of the problem it was prepared for; kernels check their lengths.
    #[inline]
    pub fn launch(&self, args: O::Args<'_, Cpu>) -> Result<(), Error> {
        self.kernel.launch(args, &()).map_err(|rejection| Error::Launch { problem: O::NAME.into(), rejection })
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

impl<O: Op> From<Chosen<O, Cpu>> for Prepared<O> {
    fn from(chosen: Chosen<O, Cpu>) -> Self {
        Prepared { kernel: chosen.kernel, candidate: chosen.candidate, how: chosen.how }
    }
}

/// A problem that a session can be asked about.
pub trait Asked: Sized {
    /// Its operation.
    type Op: Op<Problem = Self>;
    /// The session's tuner of that operation.
    fn tuner(session: &Session) -> &Tuner<Self::Op, Cpu>;
}

impl Asked for GemmProblem {
    type Op = Gemm;
    fn tuner(session: &Session) -> &Tuner<Gemm, Cpu> {
        session.gemm_tuner()
    }
}

impl Asked for AttentionProblem {
    type Op = Attention;
    fn tuner(session: &Session) -> &Tuner<Attention, Cpu> {
        session.attention_tuner()
    }
}

impl Asked for BsrProblem {
    type Op = Bsr;
    fn tuner(session: &Session) -> &Tuner<Bsr, Cpu> {
        session.bsr_tuner()
    }
}
