//! cuSPARSE on Blocked-ELL: the matrix is written out with as many blocks in every row (`blocked_ell.cu`), then SpMM.
//!
//! Idea: the library's tensor-core kernel knows this format alone. The writing out is done at every launch, because
//! blocks and indices are the caller's and may change; it costs one reading of the blocks and one writing of the padded
//! ones. Wins: hardly ever; an anchor of every race. Limits: f16/bf16, block sizes that are powers of two, rows of
//! which the fullest has at most twice the mean; where the library is found, and as `cusparse_bsr`.

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::dtype::DType;
use warplap_core::op::Op;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cuda::{Blocks, Cuda, Function, LaunchShape, Source, Spmm, SpmmAt, Stream, Workspaces};

use super::cusparse_bsr::{no_cusparse, spec, version};
use super::plan::is_half;
use super::turned::Turned;
use crate::bsr::{Bsr, BsrProblem, SLOTS};
use crate::cuda::own::{Aligns, addresses};

/// SpMM over a Blocked-ELL descriptor.
pub(super) struct BlockedEll;

/// How much fuller than the mean the fullest row may be: the others are padded to it.
const PADDED: f64 = 2.0;

fn places(p: &BsrProblem) -> u64 {
    p.rows() as u64 * p.row_max
}

fn scratch(p: &BsrProblem) -> u64 {
    places(p) * (p.bs * p.bs * p.dtype.bytes() as u64 + 4)
}

impl Variant<Bsr, Cuda> for BlockedEll {
    fn id(&self) -> &str {
        "blocked_ell"
    }

    fn source(&self) -> SourceHash {
        source!(&version())
    }

    fn fit(&self, p: &BsrProblem, cuda: &Cuda) -> Fit {
        match no_cusparse(p) {
            Some(why) => Fit::aside(why),
            None if !is_half(p) => Fit::aside("f16 and bf16 only"),
            None if !p.bs.is_power_of_two() => Fit::aside("blocks of 8, 16, 32, 64 or 128"),
            None if p.imbalance() > PADDED => Fit::aside("most of it would be padding"),
            None if scratch(p) > cuda.chip().memory / 4 => Fit::aside("its scratch is too much of this GPU's memory"),
            None => Fit::HIGH,
        }
    }

    fn space(&self, _: &BsrProblem, _: &Cuda) -> Space {
        Space::single()
    }

    fn needs(&self, p: &BsrProblem, _: &Config) -> Needs {
        Needs { workspace: scratch(p) + Turned::workspace(p), ..Needs::default() }
    }

    fn compile(&self, p: &BsrProblem, _: &Config, cuda: &Cuda) -> Result<(), Rejection> {
        cuda.compile(&source(p))?;
        Turned::compile(p, cuda)
    }

    fn build(&self, p: &BsrProblem, _: &Config, cuda: &Cuda) -> Result<Box<dyn Kernel<Cuda>>, Rejection> {
        let refused = |e: warplap_cuda::CudaError| Rejection::DoesNotBuild { reason: e.to_string() };
        let spmm = Spmm::new(spec(p, Blocks::Ell(p.row_max)), cuda).map_err(refused)?;
        let over = || Rejection::OverLimits { reason: "the grid is too large for a launch".into() };
        let blocks = u32::try_from(places(p)).ok().filter(|b| *b < 1 << 31).ok_or_else(over)?;
        let shape = LaunchShape { grid: [blocks, 1, 1], threads: 128, ..LaunchShape::default() };
        let function = cuda.build(&source(p))?;
        Ok(Box::new(Padded {
            problem: *p,
            aligns: Aligns::of(&Bsr::signature(p))?,
            spmm,
            function,
            shape,
            full: Workspaces::default(),
            columns: Workspaces::default(),
            queueing: Mutex::default(),
            turned: Turned::new(p, cuda)?,
        }))
    }

    fn is_library(&self) -> bool {
        true
    }
}

/// The kernel that writes the matrix out.
pub(super) fn source(p: &BsrProblem) -> Source {
    let defines = [("BS", p.bs), ("SIZE", p.dtype.bytes() as u64), ("WIDE", p.row_max.max(1))];
    let defines = defines.map(|(n, v)| (n, v as i64)).to_vec();
    Source { entry: "blocked_ell", text: include_str!("blocked_ell.cu"), headers: &[], defines }
}

struct Padded {
    problem: BsrProblem,
    aligns: Aligns<SLOTS>,
    spmm: Spmm,
    function: Function,
    shape: LaunchShape,
    full: Workspaces,
    columns: Workspaces,
    // Held until both launches are queued, so that no other thread's come between them.
    queueing: Mutex<()>,
    turned: Turned,
}

impl Kernel<Cuda> for Padded {
    fn launch(&self, args: &mut [Arg<'_, Cuda>], queue: &Stream) -> Result<(), Rejection> {
        let (slots, p) = (addresses(args, &self.aligns)?, &self.problem);
        let [row_ptr, col_idx, _, b, c, ..] = slots;
        let _one = self.queueing.lock().unwrap_or_else(PoisonError::into_inner);
        let room = |rooms: &Workspaces, dtype, len: u64| {
            rooms.address(queue, len as usize, || queue.alloc(dtype, len as usize)).map_err(|e| e.rejection())
        };
        let full = room(&self.full, p.dtype, places(p) * p.bs * p.bs)?;
        let columns = room(&self.columns, DType::I32, places(p))?;
        self.turned.with(&slots, queue, |values| {
            let list = [&values, &row_ptr, &col_idx, &full, &columns].map(|a| (&raw const *a).cast::<c_void>());
            // SAFETY: five addresses, as the entry declares them; the catalog hands out kernels that refuse other
            // arguments than the signature's, the scratch holds a place for each block of the padded matrix, and the
            // caller vouches for the indices.
            unsafe { self.function.launch(&self.shape, &list, queue) }.map_err(|e| e.rejection())
        })?;
        let at = SpmmAt { row_ptr, columns, values: full, b, c };
        // SAFETY: as above; the product runs after the matrix was written out, on the same stream.
        unsafe { self.spmm.launch(&at, (p.alpha.get(), p.beta.get()), queue) }.map_err(|e| e.rejection())
    }

    fn workspace(&self) -> u64 {
        scratch(&self.problem) + Turned::workspace(&self.problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_as_many_places_as_the_fullest_has_blocks() {
        let p = Bsr::parse("bsr:m=256,k=256,n=8,bs=32,density=0.25,imbalance=2,dtype=f16").unwrap();
        assert_eq!((p.nnz, p.row_max, places(&p)), (16, 4, 32));
        assert_eq!(scratch(&p), 32 * (32 * 32 * 2 + 4));
        assert!(!spec(&p, Blocks::Ell(p.row_max)).b_col);
    }
}
