//! The right answer of a dense product, computed on the GPU in double precision. A problem and its inputs come in; the
//! product and the tolerance go out. Judged by its own tests against the host's answer; no candidate, and never raced.

use std::ffi::c_void;

use warplap_core::array::Array;
use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::op::Op;
use warplap_core::oracle::{FarAnswer, Inputs, Oracle};
use warplap_cuda::{ACTIVATED, Cuda, ELEMENT, LaunchShape, Source};

use crate::cuda::right::{Width, width_and_addresses};
use crate::gemm::cuda::plan::facts;
use crate::gemm::{self, Gemm, GemmProblem, SLOTS, Scale, slot, tolerance};

const THREADS: u32 = 256;
const TILE: u64 = 64;

/// Computes products in double precision on a GPU.
pub(super) struct Right;

/// The kernel for a problem.
pub(super) fn source(p: &GemmProblem, width: Width) -> Source {
    let headers = &[ACTIVATED, ELEMENT];
    Source { entry: "right", text: include_str!("right.cu"), headers, defines: width.facts(facts(p)) }
}

/// Blocks for a problem; `None` where a grid cannot have so many, or the kernel not such sizes.
fn blocks(p: &GemmProblem) -> Option<u32> {
    let most = i32::MAX as u64;
    let blocks = p.m.div_ceil(TILE).checked_mul(p.n.div_ceil(TILE))?.checked_mul(p.batch)?;
    u32::try_from(blocks).ok().filter(|_| blocks <= most && p.m.max(p.n).max(p.k) <= most - TILE)
}

impl Oracle<Gemm, Cuda> for Right {
    fn answer(&self, p: &GemmProblem, inputs: &Inputs<'_, Cuda>, cuda: &Cuda) -> Result<Vec<FarAnswer<Cuda>>, Error> {
        let refused = |why: &dyn std::fmt::Display| Error::Device(format!("no product in double precision: {why}"));
        let grid = blocks(p).ok_or_else(|| refused(&"the problem is too large"))?;
        let (width, input_addresses) = width_and_addresses::<SLOTS>(&Gemm::signature(p), inputs)?;
        if width == Width::Double && p.scale != Scale::None {
            return Err(refused(&"factors lie in float32 alone"));
        }
        let function = cuda.build(&source(p, width)).map_err(|e| refused(&e))?;
        let values = cuda.alloc_queued(DType::F64, p.c_len())?;
        let rows = cuda.alloc_queued(DType::F64, (p.m * p.batch) as usize)?;
        let columns = cuda.alloc_queued(DType::F64, (p.n * p.batch) as usize)?;
        // Of a pair, the largest numbers of both products, for each block.
        let halves = cuda.alloc_queued(DType::F64, if p.pair { 2 * grid as usize } else { 2 })?;
        let [a, b, _, added, other, second, factors] = input_addresses;
        let under_root = p.rms.map_or(0.0, |rms| f64::from(rms.eps()));
        let outputs = [&values, &rows, &columns].map(|output| output.address());
        let addresses = [a, b, outputs[0], outputs[1], outputs[2], added, other, second, halves.address(), factors];
        let (sizes, long) = ([p.m as i32, p.n as i32, p.k as i32], [p.lda, p.ldb, p.ldc, p.c_len() as u64]);
        let mut arguments: Vec<*const c_void> = addresses.iter().map(|at| (&raw const *at).cast()).collect();
        arguments.push((&raw const under_root).cast());
        arguments.extend(sizes.iter().map(|size| (&raw const *size).cast::<c_void>()));
        arguments.extend(long.iter().map(|size| (&raw const *size).cast::<c_void>()));
        let shape = LaunchShape { grid: [grid, 1, 1], threads: THREADS, ..LaunchShape::default() };
        // SAFETY: the entry's parameters in order; the inputs are those drawn for the problem, the outputs were made
        // for it. A bias, what is joined and a second B are read only where there are such.
        unsafe { function.launch(&shape, &arguments, cuda.stream()) }?;
        let [rows, columns] = [&rows, &columns].map(|norms| cuda.stream().read(&norms.into()));
        let magnitude = largest(&rows?, &columns?, p.batch as usize);
        let mut most = [0.0; 2];
        if p.pair {
            let of_blocks = cuda.stream().read(&(&halves).into())?.to_f64();
            most = [0, 1].map(|half| of_blocks.iter().skip(half).step_by(2).copied().fold(0.0, f64::max));
            return Ok(vec![FarAnswer { values, tolerance: tolerance(p, magnitude, most) }]);
        }
        for (most, slot) in most.iter_mut().zip([slot::BIAS, slot::JOINED]) {
            let view = inputs[slot].as_ref().filter(|_| input_addresses[slot] != 0);
            let numbers = view.map(|view| cuda.stream().read(view)).transpose()?.map(|array| array.to_f64());
            *most = gemm::largest(numbers.as_deref());
        }
        let tolerance = tolerance(p, magnitude, most);
        Ok(vec![FarAnswer { values, tolerance }])
    }
}

/// The largest product of the norm of a row and that of a column of one product of the batch, from their squares.
fn largest(rows: &Array, columns: &Array, batch: usize) -> f64 {
    let each = |norms: &Array| {
        let part = (norms.len() / batch.max(1)).max(1);
        norms.to_f64().chunks(part).map(|one| one.iter().copied().fold(0.0, f64::max).sqrt()).collect::<Vec<f64>>()
    };
    each(rows).into_iter().zip(each(columns)).map(|(row, column)| row * column).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn norms_are_multiplied_within_one_product_of_a_batch() {
        let (rows, columns) = (Array::F64(vec![4.0, 1.0, 9.0, 1.0]), Array::F64(vec![25.0, 16.0]));
        assert_eq!(largest(&rows, &columns, 2), 12.0);
        assert_eq!(largest(&rows, &columns, 1), 15.0);
    }

    #[test]
    fn a_problem_with_more_tiles_than_a_grid_has_blocks_is_left_to_the_host() {
        let blocks = |text: &str| super::blocks(&Gemm::parse(text).unwrap());
        assert_eq!(blocks("gemm:m=65,n=64,k=3,dtype=f16,batch=3"), Some(6));
        let huge = GemmProblem { m: 1 << 24, n: 1 << 24, ..GemmProblem::new(1, 1, 1, DType::F16) };
        assert_eq!(super::blocks(&huge), None);
    }
}
