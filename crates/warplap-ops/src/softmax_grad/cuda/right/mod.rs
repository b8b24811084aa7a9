//! The right answer of softmax's gradient, computed on the GPU in double precision. A problem and its inputs come in;
//! dx and its tolerance go out. Held to the host's answer by the example `cuda-right`; never raced.

use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::op::Op;
use warplap_core::oracle::{FarAnswer, Inputs, Oracle};
use warplap_cuda::{BLOCK, Cuda, ELEMENT, Source};

use super::plan::facts;
use crate::cuda::right::{addresses, launch, magnitudes, read};
use crate::softmax_grad::{Reach, SLOTS, SoftmaxGrad, SoftmaxGradProblem, tolerance};

/// Softmax's gradient in double precision on a GPU.
pub(super) struct Right;

/// The kernel for a problem.
pub(super) fn source(p: &SoftmaxGradProblem) -> Source {
    Source { entry: "right", text: include_str!("right.cu"), headers: &[BLOCK, ELEMENT], defines: facts(p) }
}

impl Oracle<SoftmaxGrad, Cuda> for Right {
    fn answer(
        &self,
        p: &SoftmaxGradProblem,
        inputs: &Inputs<'_, Cuda>,
        cuda: &Cuda,
    ) -> Result<Vec<FarAnswer<Cuda>>, Error> {
        let [y, grad, ..] = addresses::<SLOTS>(&SoftmaxGrad::signature(p), inputs)?;
        let values = cuda.alloc_queued(DType::F64, p.0.len())?;
        let most = magnitudes(cuda, 3)?;
        let words = [y, grad, values.address(), most.address(), p.0.n, f64::from(p.0.scale()).to_bits()];
        // SAFETY: the entry's parameters in order; inputs are those drawn for the problem, outputs were made for it.
        unsafe { launch(cuda, &source(p), Some(p.0.rows), &words) }?;
        let most = read(cuda, &most)?;
        let tolerance = tolerance(p, Reach { y: most[0], grad: most[1], sum: most[2] });
        Ok(vec![FarAnswer { values, tolerance }])
    }
}
