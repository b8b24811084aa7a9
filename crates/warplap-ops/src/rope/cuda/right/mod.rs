//! The right answer of rotary position embedding, computed on the GPU in double precision. A problem and its inputs come
//! in; the turned heads and the tolerance go out. Held to the host's answer by the example `cuda-right`; never raced.

use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::op::Op;
use warplap_core::oracle::{FarAnswer, Inputs, Oracle};
use warplap_cuda::{BLOCK, Cuda, ELEMENT, ROPE, Source};

use super::plan::facts;
use crate::cuda::right::{Width, launch, magnitudes, read, width_and_addresses};
use crate::rope::answer::tolerance;
use crate::rope::{Rope, RopeProblem, SLOTS};

/// Turns in double precision on a GPU.
pub(super) struct Right;

/// The kernel for a problem.
pub(super) fn source(p: &RopeProblem, width: Width) -> Source {
    let headers = &[BLOCK, ROPE, ELEMENT];
    Source { entry: "right", text: include_str!("right.cu"), headers, defines: width.facts(facts(p)) }
}

impl Oracle<Rope, Cuda> for Right {
    fn answer(&self, p: &RopeProblem, inputs: &Inputs<'_, Cuda>, cuda: &Cuda) -> Result<Vec<FarAnswer<Cuda>>, Error> {
        let signature = Rope::signature(p);
        let (width, [x, k, cos, sin, positions, bias, ..]) = width_and_addresses::<SLOTS>(&signature, inputs)?;
        let values: Vec<_> =
            signature.written().map(|slot| cuda.alloc_queued(DType::F64, slot.len())).collect::<Result<_, _>>()?;
        let most = magnitudes(cuda, 1)?;
        let to = |i: usize| values.get(i).map_or(0, |values| values.address());
        let addresses = [x, k, cos, sin, positions, bias, to(0), to(1), most.address()];
        let words = [&addresses[..], &[p.rows, p.n, p.ld, p.ldk, p.ldt]].concat();
        // SAFETY: the entry's parameters in order; inputs are those drawn for the problem, outputs were made for it.
        unsafe { launch(cuda, &source(p, width), Some(p.rows), &words) }?;
        let tolerance = tolerance(p, read(cuda, &most)?[0]);
        Ok(values.into_iter().map(|values| FarAnswer { values, tolerance }).collect())
    }
}
