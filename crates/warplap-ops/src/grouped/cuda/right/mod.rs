//! The right answer of products by groups, computed on the GPU in double precision. A problem and its inputs come in;
//! y and its tolerance go out. Held to the host's answer by the example `cuda-right`; never raced.

use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::op::Op;
use warplap_core::oracle::{FarAnswer, Inputs, Oracle};
use warplap_cuda::{BLOCK, Cuda, ELEMENT, Source};

use super::plan::{GROUPS, facts};
use crate::cuda::right::{addresses, launch, magnitudes, read};
use crate::grouped::{Grouped, GroupedProblem, SLOTS, tolerance};

/// Products by groups in double precision on a GPU.
pub(super) struct Right;

/// Rows and columns of a tile.
const TILE: u64 = 64;

/// The kernel for a problem.
pub(super) fn source(p: &GroupedProblem) -> Source {
    let headers = &[BLOCK, ELEMENT, GROUPS];
    Source { entry: "right", text: include_str!("right.cu"), headers, defines: facts(p) }
}

/// Blocks for a problem: each expert may have one tile that is not full, and so may the rows of nobody.
fn blocks(p: &GroupedProblem) -> Option<u64> {
    (p.rows / TILE + p.experts.min(p.rows) + 1).checked_mul(p.n.div_ceil(TILE))
}

impl Oracle<Grouped, Cuda> for Right {
    fn answer(
        &self,
        p: &GroupedProblem,
        inputs: &Inputs<'_, Cuda>,
        cuda: &Cuda,
    ) -> Result<Vec<FarAnswer<Cuda>>, Error> {
        let [x, w, offsets, _] = addresses::<SLOTS>(&Grouped::signature(p), inputs)?;
        let (values, largest) = (cuda.alloc_queued(DType::F64, (p.rows * p.n) as usize)?, magnitudes(cuda, 1)?);
        let words = [x, w, offsets, values.address(), largest.address(), p.rows, p.n, p.k];
        // SAFETY: the entry's parameters in order; inputs are those drawn for the problem, outputs were made for it.
        unsafe { launch(cuda, &source(p), blocks(p), &words) }?;
        let magnitude = read(cuda, &largest)?[0].sqrt();
        Ok(vec![FarAnswer { values, tolerance: tolerance(p, magnitude) }])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_blocks_for_every_tile_however_rows_are_dealt_out() {
        for text in ["rows=5,n=65,k=3,experts=9", "rows=640,n=64,k=3,experts=3", "rows=1,n=1,k=1,experts=1"] {
            let p = Grouped::parse(text).unwrap();
            let rows = p.rows;
            // The worst: as many experts as can be with one row more than whole tiles, and a row of nobody.
            let ragged = p.experts.min(rows);
            let most = (rows - ragged) / TILE + ragged + 1;
            assert!(blocks(&p).unwrap() >= most * p.n.div_ceil(TILE), "{text}");
        }
    }
}
