//! The right answer of the router's softmax, computed on the GPU in double precision. A problem and its inputs come in;
//! weights, indices and their tolerances go out. Held to the host's answer by the example `cuda-right`; never raced.

use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::op::Op;
use warplap_core::oracle::{FarAnswer, Inputs, Oracle};
use warplap_cuda::{Cuda, Source};

use super::plan::{PLAIN_HEADERS, facts};
use crate::cuda::right::{addresses, launch, magnitudes, read};
use crate::topk_softmax::{EXACT, SLOTS, TopkSoftmax, TopkSoftmaxProblem, tolerance};

/// The router's softmax in double precision on a GPU.
pub(super) struct Right;

/// The kernel for a problem.
pub(super) fn source(p: &TopkSoftmaxProblem) -> Source {
    Source { entry: "right", text: include_str!("right.cu"), headers: &PLAIN_HEADERS, defines: facts(p) }
}

impl Oracle<TopkSoftmax, Cuda> for Right {
    fn answer(
        &self,
        p: &TopkSoftmaxProblem,
        inputs: &Inputs<'_, Cuda>,
        cuda: &Cuda,
    ) -> Result<Vec<FarAnswer<Cuda>>, Error> {
        let [x, ..] = addresses::<SLOTS>(&TopkSoftmax::signature(p), inputs)?;
        let make = || cuda.alloc_queued(DType::F64, p.chosen());
        let (weights, indices, most) = (make()?, make()?, magnitudes(cuda, 1)?);
        let words = [x, weights.address(), indices.address(), most.address()];
        // SAFETY: the entry's parameters in order; inputs are those drawn for the problem, outputs were made for it.
        unsafe { launch(cuda, &source(p), Some(p.rows), &words) }?;
        let tolerance = tolerance(p, read(cuda, &most)?[0]);
        let weights = FarAnswer { values: weights, tolerance };
        Ok(vec![weights, FarAnswer { values: indices, tolerance: EXACT }])
    }
}
