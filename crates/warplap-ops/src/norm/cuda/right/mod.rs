//! The right answer of normalisation, computed on the GPU in double precision. A problem and its inputs come in; the
//! norm, the sum and the factors of codes where the problem has them, and the tolerances go out. Held to the host's answer by the example
//! `cuda-right`; never raced.

use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::op::Op;
use warplap_core::oracle::{FarAnswer, Inputs, Oracle};
use warplap_cuda::{BLOCK, CODES, Cuda, ELEMENT, PHILOX, Source};

use super::plan::facts;
use crate::cuda::right::{Width, launch, magnitudes, read, width_and_addresses};
use crate::norm::{Norm, NormProblem, Quant, Reach, SLOTS, sum_tolerance, tolerances};
use crate::philox::Dropout;

/// Normalises in double precision on a GPU.
pub(super) struct Right;

/// The kernel for a problem.
pub(super) fn source(p: &NormProblem, width: Width) -> Source {
    let headers = &[BLOCK, PHILOX, CODES, ELEMENT];
    Source { entry: "right", text: include_str!("right.cu"), headers, defines: width.facts(facts(p)) }
}

impl Oracle<Norm, Cuda> for Right {
    fn answer(&self, p: &NormProblem, inputs: &Inputs<'_, Cuda>, cuda: &Cuda) -> Result<Vec<FarAnswer<Cuda>>, Error> {
        let (width, input_addresses) = width_and_addresses::<SLOTS>(&Norm::signature(p), inputs)?;
        let [x, residual, weight, bias, _, _, before, seed, _] = input_addresses;
        let values = cuda.alloc_queued(DType::F64, p.len())?;
        let sum = p.has_sum().then(|| cuda.alloc_queued(DType::F64, p.len())).transpose()?;
        let coded = p.quant != Quant::None;
        let scales = coded.then(|| cuda.alloc_queued(DType::F64, p.rows as usize)).transpose()?;
        let most = magnitudes(cuda, 7)?;
        let [sums, factors] = [&sum, &scales].map(|of| of.as_ref().map_or(0, |of| of.address()));
        let outputs = [values.address(), sums, factors, most.address()];
        let dropout = Dropout::new(p.dropout());
        let eps = f64::from(p.eps()).to_bits();
        let numbers = [p.n, eps, u64::from(dropout.below), f64::from(dropout.grown).to_bits()];
        let words = [&[x, residual, weight, bias, before, seed], &outputs[..], &numbers].concat();
        // SAFETY: the entry's parameters in order; inputs are those drawn for the problem, outputs were made for it.
        unsafe { launch(cuda, &source(p, width), Some(p.rows), &words) }?;
        let most = read(cuda, &most)?;
        let reach = Reach { before: most[0], after: most[1], terms: most[4], inverse: most[6] };
        let (tolerance, of_scales) = tolerances(p, reach, most[2], most[3]);
        let sum = sum.map(|values| FarAnswer { values, tolerance: sum_tolerance(p, most[5]) });
        let scales = scales.map(|values| FarAnswer { values, tolerance: of_scales });
        Ok([FarAnswer { values, tolerance }].into_iter().chain(sum).chain(scales).collect())
    }
}
