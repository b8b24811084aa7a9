//! The right answer of a sampled product, computed on the GPU in double precision. A problem and its inputs come in;
//! the blocks and the tolerance go out. Held to the host's answer by the example `cuda-right`; never raced.

use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::op::Op;
use warplap_core::oracle::{FarAnswer, Inputs, Oracle};
use warplap_cuda::{Cuda, ELEMENT, Source};

use super::plan::facts;
use crate::cuda::right::{THREADS, addresses, launch, magnitudes, read, refused};
use crate::sampled::{SLOTS, Sampled, SampledProblem, no_square, tolerance};

/// Computes sampled products in double precision on a GPU.
pub(super) struct Right;

/// The kernel for a problem.
pub(super) fn source(p: &SampledProblem) -> Source {
    Source { entry: "right", text: include_str!("right.cu"), headers: &[ELEMENT], defines: facts(p) }
}

impl Oracle<Sampled, Cuda> for Right {
    fn answer(
        &self,
        p: &SampledProblem,
        inputs: &Inputs<'_, Cuda>,
        cuda: &Cuda,
    ) -> Result<Vec<FarAnswer<Cuda>>, Error> {
        if let Some(why) = no_square(p) {
            return Err(refused(why));
        }
        let pattern = &p.pattern;
        if pattern.nnz == 0 {
            return Err(refused("there is nothing to compute"));
        }
        let [row_ptr, col_idx, g, b, _] = addresses::<SLOTS>(&Sampled::signature(p), inputs)?;
        let len = pattern.values_len();
        let (values, largest) = (cuda.alloc_queued(DType::F64, len)?, magnitudes(cuda, 1)?);
        let sizes = [pattern.m, pattern.k, pattern.n, pattern.rows() as u64, pattern.nnz];
        let words = [&[row_ptr, col_idx, g, b, values.address(), largest.address()], &sizes[..]].concat();
        // SAFETY: the entry's parameters in order; inputs are those drawn for the problem, outputs were made for it.
        unsafe { launch(cuda, &source(p), Some((len as u64).div_ceil(THREADS)), &words) }?;
        let magnitude = read(cuda, &largest)?[0].sqrt();
        Ok(vec![FarAnswer { values, tolerance: tolerance(p, magnitude) }])
    }
}
