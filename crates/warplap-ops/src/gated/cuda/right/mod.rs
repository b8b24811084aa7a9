//! The right answer of an activation, computed on the GPU in double precision. A problem and its inputs come in; the
//! joined values and their tolerance go out. Held to the host's answer by the example `cuda-right`; never raced.

use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::op::Op;
use warplap_core::oracle::{FarAnswer, Inputs, Oracle};
use warplap_cuda::{ACTIVATED, BLOCK, Cuda, ELEMENT, Source};

use super::plan::facts;
use crate::cuda::right::{Width, launch, magnitudes, read, width_and_addresses};
use crate::gated::{Gated, GatedProblem, SLOTS, tolerance};

/// Activations in double precision on a GPU.
pub(super) struct Right;

/// The kernel for a problem.
pub(super) fn source(p: &GatedProblem, width: Width) -> Source {
    let headers = &[BLOCK, ACTIVATED, ELEMENT];
    Source { entry: "right", text: include_str!("right.cu"), headers, defines: width.facts(facts(p)) }
}

impl Oracle<Gated, Cuda> for Right {
    fn answer(&self, p: &GatedProblem, inputs: &Inputs<'_, Cuda>, cuda: &Cuda) -> Result<Vec<FarAnswer<Cuda>>, Error> {
        let (width, [a, b, _]) = width_and_addresses::<SLOTS>(&Gated::signature(p), inputs)?;
        let values = cuda.alloc_queued(DType::F64, p.len())?;
        let most = magnitudes(cuda, 1)?;
        let words = [a, b, values.address(), most.address(), p.lda, p.ldb];
        // SAFETY: the entry's parameters in order; inputs are those drawn for the problem, outputs were made for it.
        unsafe { launch(cuda, &source(p, width), Some(p.rows), &words) }?;
        let tolerance = tolerance(p, read(cuda, &most)?[0]);
        Ok(vec![FarAnswer { values, tolerance }])
    }
}
