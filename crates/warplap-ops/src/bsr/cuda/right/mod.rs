//! The right answer of a block-sparse product, computed on the GPU in double precision. A problem and its inputs come in;
//! the product and the tolerance go out. Held to the host's answer by the example `cuda-right`; no candidate, and never raced.

use std::ffi::c_void;

use warplap_core::array::Array;
use warplap_core::device::Device;
use warplap_core::dtype::DType;
use warplap_core::error::Error;
use warplap_core::op::Op;
use warplap_core::oracle::{FarAnswer, Inputs, Oracle};
use warplap_core::slot::Slot;
use warplap_cuda::{Cuda, ELEMENT, LaunchShape, Source, View, dtype_code};

use crate::bsr::slot::{B, COL_IDX, PLACE, ROW_PTR, VALUES};
use crate::bsr::{Bsr, BsrProblem, addend, tolerance};
use crate::gemm::Layout;

const THREADS: u64 = 256;

/// Computes block-sparse products in double precision on a GPU.
pub(super) struct Right;

/// The kernel for a problem.
pub(super) fn source(p: &BsrProblem) -> Source {
    let col = |layout| layout == Layout::Col;
    let facts = [("B_COL", col(p.b)), ("C_COL", col(p.c)), ("TURNED", p.turned), ("ADDS", p.adds())];
    let mut defines = vec![("DTYPE", dtype_code(p.dtype)), ("BS", p.bs as i64), ("BC", p.bc as i64)];
    defines.extend(facts.map(|(name, fact)| (name, i64::from(fact))));
    Source { entry: "right", text: include_str!("right.cu"), headers: &[ELEMENT], defines }
}

/// Blocks for a problem; `None` where a grid cannot have so many.
fn blocks(p: &BsrProblem) -> Option<u32> {
    let blocks = p.m.checked_mul(p.n)?.div_ceil(THREADS);
    u32::try_from(blocks).ok().filter(|b| *b <= i32::MAX as u32)
}

impl Oracle<Bsr, Cuda> for Right {
    fn answer(&self, p: &BsrProblem, inputs: &Inputs<'_, Cuda>, cuda: &Cuda) -> Result<Vec<FarAnswer<Cuda>>, Error> {
        let refused = |why: &dyn std::fmt::Display| Error::Device(format!("no product in double precision: {why}"));
        let grid = blocks(p).ok_or_else(|| refused(&"the problem is too large"))?;
        let signature = Bsr::signature(p);
        let holds = |(slot, input): (&Slot, &Option<View<'_>>)| {
            !slot.is_read() || input.is_some_and(|view| view.dtype() == slot.dtype && view.len() >= slot.len())
        };
        if inputs.len() != signature.slots().len() || !signature.slots().iter().zip(inputs).all(holds) {
            return Err(refused(&"it takes the inputs that were drawn for the problem"));
        }
        let function = cuda.build(&source(p)).map_err(|e| refused(&e))?;
        let values = cuda.alloc_queued(DType::F64, (p.m * p.n) as usize)?;
        let largest = cuda.upload_queued(&Array::F64(vec![0.0]))?;
        let at = |slot: usize| inputs[slot].map_or(0, |view| view.address());
        let [row_ptr, col_idx, stored, b, add, place] = [ROW_PTR, COL_IDX, VALUES, B, addend(p), PLACE].map(at);
        let addresses = [row_ptr, col_idx, stored, b, add, place, values.address(), largest.address(), p.m, p.k, p.n];
        let (alpha, beta) = (f64::from(p.alpha.get()), f64::from(p.beta.get()));
        let mut arguments: Vec<*const c_void> = addresses.iter().map(|at| (&raw const *at).cast()).collect();
        arguments.extend([(&raw const alpha).cast::<c_void>(), (&raw const beta).cast()]);
        let shape = LaunchShape { grid: [grid, 1, 1], threads: THREADS as u32, ..LaunchShape::default() };
        // SAFETY: the entry's parameters in order; the inputs are those drawn for the problem, the outputs were made for it.
        unsafe { function.launch(&shape, &arguments, cuda.stream()) }?;
        let magnitude = cuda.stream().read(&(&largest).into())?.at(0).sqrt();
        Ok(vec![FarAnswer { values, tolerance: tolerance(p, magnitude) }])
    }
}
