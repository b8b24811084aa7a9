//! The right answer of a product of 8-bit numbers, computed on the GPU in double precision. A problem and its inputs
//! come in; the product and the tolerance go out. Held to the host's answer by the example `cuda-right`; never raced.

use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::op::Op;
use warplap_core::oracle::{FarAnswer, Inputs, Oracle};
use warplap_cuda::{Cuda, ELEMENT, QUANT, Source};

use super::plan::facts;
use crate::cuda::right::{addresses, launch, refused};
use crate::qgemm::{Qgemm, QgemmProblem, SLOTS, tolerance};

/// Rows and columns of a block's tile.
const TILE: u64 = 64;

/// Computes products of 8-bit numbers in double precision on a GPU.
pub(super) struct Right;

/// The kernel for a problem.
pub(super) fn source(p: &QgemmProblem) -> Source {
    Source { entry: "right", text: include_str!("right.cu"), headers: &[QUANT, ELEMENT], defines: facts(p) }
}

impl Oracle<Qgemm, Cuda> for Right {
    fn answer(&self, p: &QgemmProblem, inputs: &Inputs<'_, Cuda>, cuda: &Cuda) -> Result<Vec<FarAnswer<Cuda>>, Error> {
        if p.m * p.n == 0 {
            return Err(refused("there is nothing to compute"));
        }
        let [a, b, scale_a, scale_b, _] = addresses::<SLOTS>(&Qgemm::signature(p), inputs)?;
        let values = cuda.alloc_queued(DType::F64, (p.m * p.n) as usize)?;
        let [rows, columns] = [p.m, p.n].map(|len| cuda.alloc_queued(DType::F64, len as usize));
        let (rows, columns) = (rows?, columns?);
        let outputs = [values.address(), rows.address(), columns.address()];
        let words = [&[a, b, scale_a, scale_b], &outputs[..], &[p.m, p.n, p.k, p.b_scale_pitch()]].concat();
        let blocks = p.m.div_ceil(TILE).checked_mul(p.n.div_ceil(TILE));
        // SAFETY: the entry's parameters in order; inputs are those drawn for the problem, outputs were made for it.
        unsafe { launch(cuda, &source(p), blocks, &words) }?;
        let mut magnitude = 1.0;
        for squares in [&rows, &columns] {
            let squares = cuda.stream().read(&squares.into())?.to_f64();
            magnitude *= squares.into_iter().fold(0.0, f64::max).sqrt();
        }
        Ok(vec![FarAnswer { values, tolerance: tolerance(p, magnitude) }])
    }
}
