//! The right answer of softmax, computed on the GPU in double precision. A problem and its inputs come in; the softmax
//! and its tolerance go out. Held to the host's answer by the example `cuda-right`; never raced.

use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::op::Op;
use warplap_core::oracle::{FarAnswer, Inputs, Oracle};
use warplap_cuda::{BLOCK, Cuda, ELEMENT, Source};

use super::plan::facts;
use crate::cuda::right::{Width, launch, magnitudes, read, width_and_addresses};
use crate::softmax::{SLOTS, Softmax, SoftmaxProblem, tolerance};

/// Softmax in double precision on a GPU.
pub(super) struct Right;

/// The kernel for a problem.
pub(super) fn source(p: &SoftmaxProblem, width: Width) -> Source {
    let headers = &[BLOCK, ELEMENT];
    Source { entry: "right", text: include_str!("right.cu"), headers, defines: width.facts(facts(p)) }
}

impl Oracle<Softmax, Cuda> for Right {
    fn answer(
        &self,
        p: &SoftmaxProblem,
        inputs: &Inputs<'_, Cuda>,
        cuda: &Cuda,
    ) -> Result<Vec<FarAnswer<Cuda>>, Error> {
        let (width, [x, mask, ..]) = width_and_addresses::<SLOTS>(&Softmax::signature(p), inputs)?;
        let values = cuda.alloc_queued(DType::F64, p.len())?;
        let most = magnitudes(cuda, 1)?;
        let sizes = [p.n, p.mask.max(1), p.each.max(1), f64::from(p.scale()).to_bits()];
        let words = [&[x, mask, values.address(), most.address()], &sizes[..]].concat();
        // SAFETY: the entry's parameters in order; inputs are those drawn for the problem, outputs were made for it.
        unsafe { launch(cuda, &source(p, width), Some(p.rows), &words) }?;
        let tolerance = tolerance(p, read(cuda, &most)?[0]);
        Ok(vec![FarAnswer { values, tolerance }])
    }
}
