//! The right answer of a norm's gradients, computed on the GPU in double precision. A problem and its inputs come in;
//! the gradients and their tolerances go out. Held to the host's answer by the example `cuda-right`; never raced.

use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::op::Op;
use warplap_core::oracle::{FarAnswer, Inputs, Oracle};
use warplap_cuda::{BLOCK, Cuda, ELEMENT, PHILOX, Source};

use super::plan::facts;
use crate::cuda::right::{THREADS, addresses, launch, magnitudes, read};
use crate::norm_grad::{NormGrad, NormGradProblem, Reach, SLOTS, tolerances};
use crate::philox::Dropout;

/// A norm's gradients in double precision on a GPU.
pub(super) struct Right;

/// The kernel of a problem whose entry has this name: `right` by rows, `right_columns` behind it.
pub(super) fn source(p: &NormGradProblem, entry: &'static str) -> Source {
    Source { entry, text: include_str!("right.cu"), headers: &[BLOCK, PHILOX, ELEMENT], defines: facts(p) }
}

impl Oracle<NormGrad, Cuda> for Right {
    fn answer(
        &self,
        p: &NormGradProblem,
        inputs: &Inputs<'_, Cuda>,
        cuda: &Cuda,
    ) -> Result<Vec<FarAnswer<Cuda>>, Error> {
        let [s, grad, weight, total, seed, ..] = addresses::<SLOTS>(&NormGrad::signature(p), inputs)?;
        let (norm, n) = (&p.norm, p.norm.n as usize);
        let room = |wanted: bool, len: usize| wanted.then(|| cuda.alloc_queued(DType::F64, len)).transpose();
        let (ds, dx) = (room(true, norm.len())?, room(norm.dropout() > 0.0, norm.len())?);
        let (dweight, dbias) = (room(norm.weight, n)?, room(norm.bias, n)?);
        let (rows, most) = (cuda.alloc_queued(DType::F64, 2 * norm.rows as usize)?, magnitudes(cuda, 5)?);
        let outputs = [&ds, &dx, &dweight, &dbias].map(|of| of.as_ref().map_or(0, |of| of.address()));
        let dropout = Dropout::new(norm.dropout());
        let factors = [f64::from(norm.eps()).to_bits(), u64::from(dropout.below), f64::from(dropout.grown).to_bits()];
        let rooms = [rows.address(), most.address(), norm.rows, norm.n];
        let words = [&[s, grad, weight, total, seed], &outputs[..], &rooms, &factors].concat();
        for (entry, blocks) in [("right", norm.rows), ("right_columns", norm.n.div_ceil(THREADS))] {
            // SAFETY: the entries' parameters in order; inputs are those drawn for the problem, outputs were made for it.
            unsafe { launch(cuda, &source(p, entry), Some(blocks), &words) }?;
        }
        let most = read(cuda, &most)?;
        let reach = Reach { inverse: most[0], before: most[1], normed: most[2], grad: most[3] };
        let answers = [ds, dx, dweight, dbias].into_iter().zip(tolerances(p, reach, most[4]));
        Ok(answers.filter_map(|(values, tolerance)| Some(FarAnswer { values: values?, tolerance })).collect())
    }
}
