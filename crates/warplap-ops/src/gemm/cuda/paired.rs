//! Pairs for kernels that take one B: two launches.
//!
//! What comes in is a twin that knows nothing of pairs; what goes out is one that writes A·B2 to C and then act(A·B) times
//! what is there: every element is read by the thread that writes it, just before it does. C is read and written once
//! more than by a kernel that multiplies both at once, and in half types the second product is rounded on the way. For
//! types that no such kernel takes, and for few rows, where B is all that counts.

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::Fit;
use warplap_cuda::Chip;

use crate::cuda::plan::{Argument, CudaKernelSpec, Plan, PrePostLaunches};
use crate::gemm::{Activation, GemmProblem, Join, slot};

/// A twin that also does pairs.
pub(super) struct Paired<T>(pub(super) T);

/// The activated product of a pair, joined with the other one; what is no pair stays as it is.
fn last(p: &GemmProblem) -> GemmProblem {
    if p.pair { p.with_pair(false).with_join(Join::Mul) } else { *p }
}

/// The other product of a pair.
fn first(p: &GemmProblem) -> GemmProblem {
    p.with_pair(false).with_epilogue(false, Activation::None)
}

/// The plan with one buffer in another's place.
fn moved(mut plan: Plan, from: usize, to: usize) -> Plan {
    for argument in &mut plan.arguments {
        match argument {
            Argument::Map(buffer, _) | Argument::Pointer(buffer) if *buffer == from => *buffer = to,
            _ => (),
        }
    }
    plan
}

impl<T: CudaKernelSpec<GemmProblem>> CudaKernelSpec<GemmProblem> for Paired<T> {
    fn id(&self) -> &'static str {
        self.0.id()
    }

    fn source(&self) -> SourceHash {
        source!(&self.0.source().0)
    }

    fn fit(&self, p: &GemmProblem, chip: &Chip) -> Fit {
        self.0.fit(&last(p), chip)
    }

    fn space(&self, p: &GemmProblem, chip: &Chip) -> Space {
        self.0.space(&last(p), chip)
    }

    fn plan(&self, p: &GemmProblem, config: &Config, chip: &Chip) -> Result<Plan, Rejection> {
        let plan = self.0.plan(&last(p), config, chip)?;
        Ok(if p.pair { moved(plan, slot::JOINED, slot::C) } else { plan })
    }

    fn beside(&self, p: &GemmProblem, config: &Config, chip: &Chip) -> Result<PrePostLaunches, Rejection> {
        if !p.pair {
            return self.0.beside(p, config, chip);
        }
        let plan = self.0.plan(&first(p), config, chip)?;
        Ok(PrePostLaunches { first: vec![moved(plan, slot::B, slot::B2)], last: Vec::new() })
    }
}
