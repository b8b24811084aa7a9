//! The worker's side of a user's CUDA kernels: a request names a spec file, and its kernel is proved as any other, in a
//! process that a bad one may take with it.

use std::sync::Arc;

use warplap::core::sandbox::{Passed, ProofStage, Refusal, SandboxRequest};
use warplap::core::worker_entry::{OpProver, Prove};
use warplap::cuda::Ground;
use warplap::{Cuda, Op};

use crate::cuda::Right;
use crate::op::KernelFile;

/// What a worker proves users' CUDA kernels on: a program that races them says so at the top of its `main`, by
/// `warplap::worker::Worker::new().with_ground(warplap_spec::ground()).serve_if_asked()`.
pub fn ground() -> Ground {
    Ground::by::<KernelFile>(|device| Box::new(KernelGround { device, open: None }))
}

/// The ground of the spec asked for last: its configs come in a row.
struct KernelGround {
    device: Arc<Cuda>,
    open: Option<(String, OpProver<KernelFile, Cuda>)>,
}

impl Prove for KernelGround {
    fn prove(&mut self, request: &SandboxRequest, stage: &mut dyn FnMut(ProofStage)) -> Result<Passed, Refusal> {
        let ground = match self.open.take().filter(|(problem, _)| *problem == request.problem) {
            Some((_, ground)) => ground,
            None => {
                stage(ProofStage::Draw);
                let problem = KernelFile::parse(&request.problem).map_err(|e| Refusal::Unknown(e.to_string()))?;
                let (spec, right) = (problem.spec(), Right(problem.spec().clone()));
                if spec.is_judged_afar() && right.is_asked_for(request) {
                    right.tried_out(&self.device, request.seed, stage)?;
                }
                OpProver::new(self.device.clone(), spec.on_cuda())
            }
        };
        self.open.insert((request.problem.clone(), ground)).1.prove(request, stage)
    }
}
