//! cuSPARSE on the matrix as it is: SpMM over a BSR descriptor.
//!
//! Idea: the library everybody has. Its kernel for this format multiplies on plain lanes in every type. Wins: hardly
//! ever; an anchor of every race. Limits: where the library is found; the addend must be C itself, so it stands aside
//! where it is another.

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::op::Op;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cuda::{Blocks, Cuda, Sparse, Spmm, SpmmAt, SpmmSpec, Stream};

use super::turned::Turned;
use crate::bsr::{Bsr, BsrProblem, SLOTS};
use crate::cuda::own::{Aligns, addresses};
use crate::gemm::Layout;

/// SpMM over a BSR descriptor.
pub(super) struct CusparseBsr;

/// Why the library has nothing to offer for a problem, whatever the format, if so.
pub(super) fn no_cusparse(p: &BsrProblem) -> Option<String> {
    match Sparse::get() {
        Err(why) => Some(why.to_string()),
        Ok(_) if p.is_bytes() => Some("f32, f16 and bf16 only".into()),
        Ok(_) if p.adds() && !p.in_place => Some("the library adds to C itself alone".into()),
        Ok(_) if !p.is_square() => Some("square blocks only".into()),
        Ok(_) if p.nnz == 0 => Some("the library takes no empty matrix".into()),
        Ok(_) if p.m.max(p.n).max(p.k) > i32::MAX as u64 => Some("sizes must fit 31 bits".into()),
        Ok(_) => None,
    }
}

/// The library's version, so that another one is raced again.
pub(super) fn version() -> String {
    Sparse::get().map_or_else(|_| String::new(), |sparse| format!("{:?}", sparse.version()))
}

/// What the library is asked for.
pub(super) fn spec(p: &BsrProblem, blocks: Blocks) -> SpmmSpec {
    SpmmSpec {
        dtype: p.dtype,
        m: p.m,
        k: p.k,
        n: p.n,
        bs: p.bs,
        blocks,
        b_col: p.b == Layout::Col,
        c_col: p.c == Layout::Col,
    }
}

impl Variant<Bsr, Cuda> for CusparseBsr {
    fn id(&self) -> &str {
        "cusparse_bsr"
    }

    fn source(&self) -> SourceHash {
        source!(&version())
    }

    fn fit(&self, p: &BsrProblem, _: &Cuda) -> Fit {
        // Libraries are in every race; this one is not the first choice of those that are.
        no_cusparse(p).map_or(Fit::MEDIUM, Fit::aside)
    }

    fn space(&self, _: &BsrProblem, _: &Cuda) -> Space {
        Space::single()
    }

    fn needs(&self, p: &BsrProblem, _: &Config) -> Needs {
        Needs { workspace: Turned::workspace(p), ..Needs::default() }
    }

    fn compile(&self, p: &BsrProblem, _: &Config, cuda: &Cuda) -> Result<(), Rejection> {
        Turned::compile(p, cuda)
    }

    fn build(&self, p: &BsrProblem, _: &Config, cuda: &Cuda) -> Result<Box<dyn Kernel<Cuda>>, Rejection> {
        let refused = |e: warplap_cuda::CudaError| Rejection::DoesNotBuild { reason: e.to_string() };
        let spmm = Spmm::new(spec(p, Blocks::Bsr(p.nnz)), cuda).map_err(refused)?;
        let aligns = Aligns::of(&Bsr::signature(p))?;
        Ok(Box::new(Called { problem: *p, aligns, spmm, turned: Turned::new(p, cuda)? }))
    }

    fn is_library(&self) -> bool {
        true
    }
}

struct Called {
    problem: BsrProblem,
    aligns: Aligns<SLOTS>,
    spmm: Spmm,
    turned: Turned,
}

impl Kernel<Cuda> for Called {
    fn launch(&self, args: &mut [Arg<'_, Cuda>], queue: &Stream) -> Result<(), Rejection> {
        let (slots, p) = (addresses(args, &self.aligns)?, &self.problem);
        let [row_ptr, columns, _, b, c, ..] = slots;
        self.turned.with(&slots, queue, |values| {
            let at = SpmmAt { row_ptr, columns, values, b, c };
            // SAFETY: the catalog hands out kernels that refuse other arguments than the signature's, the views borrow
            // them, and the caller vouches for the indices.
            unsafe { self.spmm.launch(&at, (p.alpha.get(), p.beta.get()), queue) }.map_err(|e| e.rejection())
        })
    }

    fn workspace(&self) -> u64 {
        Turned::workspace(&self.problem)
    }
}
