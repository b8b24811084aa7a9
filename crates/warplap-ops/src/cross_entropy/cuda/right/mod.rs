//! The right answer of cross entropy, computed on the GPU in double precision. A problem and its inputs come in; the
//! gradient, losses, log-sum-exps, the total and their tolerances go out. Held to the host's answer by the example
//! `cuda-right`; never raced.

use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::op::Op;
use warplap_core::oracle::{FarAnswer, Inputs, Oracle};
use warplap_cuda::{BLOCK, Cuda, ELEMENT, Source};

use super::plan::facts;
use crate::cross_entropy::answer::{Reach, in_order, tolerances};
use crate::cross_entropy::{CrossEntropy, CrossEntropyProblem, SLOTS};
use crate::cuda::right::{addresses, launch, magnitudes, read};

/// Cross entropy in double precision on a GPU.
pub(super) struct Right;

/// The kernels for a problem: how many rows count, each row, and their total.
pub(super) fn sources(p: &CrossEntropyProblem) -> [Source; 3] {
    ["right_count", "right", "right_total"].map(|entry| {
        let text = include_str!("right.cu");
        Source { entry, text, headers: &[BLOCK, ELEMENT], defines: facts(p) }
    })
}

impl Oracle<CrossEntropy, Cuda> for Right {
    fn answer(
        &self,
        p: &CrossEntropyProblem,
        inputs: &Inputs<'_, Cuda>,
        cuda: &Cuda,
    ) -> Result<Vec<FarAnswer<Cuda>>, Error> {
        let [logits, labels, ..] = addresses::<SLOTS>(&CrossEntropy::signature(p), inputs)?;
        let make = |len: usize| cuda.alloc_queued(DType::F64, len);
        let gradient = p.grad.then(|| make(p.len())).transpose()?;
        let (loss, lse, total) = (make(p.rows as usize)?, make(p.rows as usize)?, make(1)?);
        // Five magnitudes, and how many rows count.
        let most = magnitudes(cuda, 6)?;
        let to = gradient.as_ref().map_or(0, |gradient| gradient.address());
        let [smoothing, zloss] = [p.smoothing(), p.zloss()].map(|x| f64::from(x).to_bits());
        let outputs = [to, loss.address(), lse.address(), total.address(), most.address()];
        let words = [&[logits, labels], &outputs[..], &[p.rows, p.n, p.ignore as u64, smoothing, zloss]].concat();
        for (source, blocks) in sources(p).iter().zip([1, p.rows, 1]) {
            // SAFETY: the entries' parameters in order, the same for all; inputs are those drawn for the problem,
            // outputs were made for it.
            unsafe { launch(cuda, source, Some(blocks), &words) }?;
        }
        let most = read(cuda, &most)?;
        let [exponent, lse_most, picked, label, loss_most] = [0, 1, 2, 3, 4].map(|i| most[i]);
        let reach = Reach { exponent, lse: lse_most, picked, label, loss: loss_most };
        let all = [gradient, Some(loss), Some(lse), Some(total)].into_iter().zip(tolerances(p, reach, most[5] as u64));
        let all = in_order(p, all.collect());
        Ok(all.into_iter().filter_map(|(values, tolerance)| Some(FarAnswer { values: values?, tolerance })).collect())
    }
}
