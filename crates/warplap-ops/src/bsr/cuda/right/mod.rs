//! The right answer of a block-sparse product, computed on the GPU in double precision. A problem and its inputs come
//! in; the product and the tolerance go out. Held to the host's answer by the example `cuda-right`; never raced.

use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::op::Op;
use warplap_core::oracle::{FarAnswer, Inputs, Oracle};
use warplap_cuda::{Cuda, ELEMENT, FACTOR, QUANT, Source};

use super::plan::type_facts;
use crate::bsr::slot::{B, COL_IDX, PLACE, ROW_PTR, VALUES};
use crate::bsr::{Bsr, BsrProblem, SLOTS, addend, tolerance};
use crate::cuda::right::{THREADS, addresses, launch, magnitudes, read};
use crate::gemm::Layout;

/// Computes block-sparse products in double precision on a GPU.
pub(super) struct Right;

/// The kernel for a problem.
pub(super) fn source(p: &BsrProblem) -> Source {
    let col = |layout| layout == Layout::Col;
    let facts = [("B_COL", col(p.b)), ("C_COL", col(p.c)), ("TURNED", p.turned), ("ADDS", p.adds()), ("BIAS", p.bias)];
    let mut defines = type_facts(p);
    defines.extend([("BS", p.bs as i64), ("BC", p.bc as i64)]);
    defines.extend(facts.map(|(name, fact)| (name, i64::from(fact))));
    Source { entry: "right", text: include_str!("right.cu"), headers: &[FACTOR, QUANT, ELEMENT], defines }
}

impl Oracle<Bsr, Cuda> for Right {
    fn answer(&self, p: &BsrProblem, inputs: &Inputs<'_, Cuda>, cuda: &Cuda) -> Result<Vec<FarAnswer<Cuda>>, Error> {
        let at = addresses::<SLOTS>(&Bsr::signature(p), inputs)?;
        let (values, largest) = (cuda.alloc_queued(DType::F64, (p.m * p.n) as usize)?, magnitudes(cuda, 1)?);
        let mut words = [ROW_PTR, COL_IDX, VALUES, B, addend(p), PLACE].map(|slot| at[slot]).to_vec();
        words.extend([values.address(), largest.address(), p.m, p.k, p.n]);
        words.extend([p.alpha, p.beta].map(|factor| f64::from(factor.get()).to_bits()));
        let blocks = p.m.checked_mul(p.n).map(|elements| elements.div_ceil(THREADS));
        // SAFETY: the entry's parameters in order; inputs are those drawn for the problem, outputs were made for it.
        unsafe { launch(cuda, &source(p), blocks, &words) }?;
        let magnitude = read(cuda, &largest)?[0].sqrt();
        Ok(vec![FarAnswer { values, tolerance: tolerance(p, magnitude) }])
    }
}
