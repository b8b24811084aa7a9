//! The reference: one block a query row, f32 throughout, one pass over the keys.
//!
//! Idea: the plainest kernel there is. Wins: never by design. Limits: none but shared memory for one query and one row
//! of output; it fits everything and is the fallback.

use std::ffi::c_void;

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::op::Op;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Variant};
use warplap_cuda::{Cuda, ELEMENT, Function, LaunchShape, Source, Stream, dtype_code};

use crate::attention::{Attention, AttentionProblem, Mask};
use crate::cuda::own::{Aligns, addresses};

/// One block a query row.
pub(super) struct Reference;

/// Threads of a block, and keys it looks at together.
const KEYS: u64 = 128;

impl Variant<Attention, Cuda> for Reference {
    fn id(&self) -> &str {
        "reference"
    }

    fn source(&self) -> SourceHash {
        source!()
    }

    fn fit(&self, _: &AttentionProblem, _: &Cuda) -> Fit {
        Fit::LOW
    }

    fn space(&self, _: &AttentionProblem, _: &Cuda) -> Space {
        Space::single()
    }

    fn build(&self, p: &AttentionProblem, _: &Config, cuda: &Cuda) -> Result<Box<dyn Kernel<Cuda>>, Rejection> {
        let aligns = Aligns::of(&Attention::signature(p))?;
        let shape = shape(p, cuda.chip().shared_memory)?;
        let function = cuda.build(&source(p))?;
        function.allow_shared(shape.shared).map_err(|e| e.rejection())?;
        Ok(Box::new(Rows { problem: *p, aligns, function, shape }))
    }
}

/// The source with the problem's facts.
pub(super) fn source(p: &AttentionProblem) -> Source {
    let facts =
        [("DTYPE", dtype_code(p.dtype)), ("CAUSAL", i64::from(p.causal)), ("MASK", i64::from(p.mask == Mask::Add))];
    Source { entry: "reference", text: include_str!("reference.cu"), headers: &[ELEMENT], defines: facts.to_vec() }
}

fn shape(p: &AttentionProblem, most: u64) -> Result<LaunchShape, Rejection> {
    let over = |reason: &str| Rejection::OverLimits { reason: reason.into() };
    let shared = 4 * (4 + KEYS + p.d + p.dv);
    if shared > most {
        return Err(over("one query and one row of output do not fit shared memory"));
    }
    let rows = u32::try_from(p.b * p.h * p.sq).ok().filter(|r| *r < 1 << 31);
    let rows =
        rows.filter(|_| p.sk.max(p.d).max(p.dv) < 1 << 31).ok_or_else(|| over("the sizes do not fit 31 bits"))?;
    Ok(LaunchShape { grid: [rows, 1, 1], threads: KEYS as u32, shared: shared as u32, ..LaunchShape::default() })
}

struct Rows {
    problem: AttentionProblem,
    aligns: Aligns<5>,
    function: Function,
    shape: LaunchShape,
}

impl Kernel<Cuda> for Rows {
    fn launch(&self, args: &mut [Arg<'_, Cuda>], queue: &Stream) -> Result<(), Rejection> {
        let p = &self.problem;
        let buffers = addresses(args, &self.aligns)?;
        let sizes = [p.h, p.group(), p.sq, p.sk, p.d, p.dv].map(|x| x as i32);
        let scale = p.scale();
        let strides = [p.q_strides(), p.k_strides(), p.v_strides(), p.o_strides()];
        let strides = strides.map(|s| [s.batch as u64, s.head as u64, s.row as u64]);
        let mut list: Vec<*const c_void> = buffers.iter().map(|b| (&raw const *b).cast()).collect();
        list.extend(sizes.iter().map(|s| (&raw const *s).cast::<c_void>()));
        list.push((&raw const scale).cast());
        list.extend(strides.iter().flatten().map(|s| (&raw const *s).cast::<c_void>()));
        // SAFETY: five addresses in the order of the slots, six ints, a float and twelve strides, as the entry declares
        // them; the catalog hands out kernels that refuse other arguments than the signature's, and the views borrow
        // the buffers.
        unsafe { self.function.launch(&self.shape, &list, queue) }.map_err(|e| e.rejection())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warplap_core::dtype::DType;

    #[test]
    fn rows_of_any_length_get_the_shared_memory_they_need_or_are_refused() {
        let shape_of = |sq, d| shape(&AttentionProblem::new(2, 4, sq, 20, d, DType::F32), 232_448);
        let plain = shape_of(10, 64).unwrap();
        assert_eq!((plain.grid, plain.shared), ([80, 1, 1], 4 * (4 + 128 + 128)));
        assert!(matches!(shape_of(1, 1 << 16), Err(Rejection::OverLimits { .. })));
        assert!(matches!(shape_of(1 << 31, 8), Err(Rejection::OverLimits { .. })));
    }
}
