//! Fill in the zeros and call the library: A is written out dense (`densify.cu`), then cuBLASLt multiplies.
//!
//! Idea: a dense product has no indices; above some density its better rate outweighs the work on zeros. Wins: small blocks
//! from about a quarter full. Limits: m·k elements of scratch, so launches of one kernel follow each other; where the
//! library is found.

use std::ffi::c_void;

use warplap_core::candidate::SourceHash;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cuda::{Buffer, Cuda, Function, HOPPER, LaunchShape, Lt, Matmul, MatmulSpec, MatrixSpec, Source, Stream};

use super::launch::addresses;
use crate::bsr::{Bsr, BsrArgs, BsrProblem};
use crate::cuda::plan::axis;
use crate::gemm::Layout;

/// Fill in the zeros.
pub(super) struct Densify;

/// Below this share of blocks the zeros cost more than any rate can win back.
const SPARSE: f64 = 0.15;
/// MiB of workspace an algorithm may take.
const WORKSPACE: u64 = 32;

fn scratch(p: &BsrProblem) -> u64 {
    p.m * p.k * p.dtype.bytes() as u64
}

impl Variant<Bsr, Cuda> for Densify {
    fn id(&self) -> &str {
        "densify"
    }

    fn source(&self) -> SourceHash {
        let version = Lt::get().map_or(0, Lt::version).to_string();
        SourceHash::of(&[include_str!("densify.cu"), include_str!("densify.rs"), &version])
    }

    fn fit(&self, p: &BsrProblem, cuda: &Cuda) -> Fit {
        let density = p.density();
        match Lt::get() {
            Err(why) => Fit::aside(why),
            Ok(_) if scratch(p) > cuda.chip().memory / 4 => Fit::aside("its scratch is too much of this GPU's memory"),
            Ok(_) if p.m.max(p.n).max(p.k) > i32::MAX as u64 => Fit::aside("sizes must fit 31 bits"),
            Ok(_) if density < SPARSE => Fit::aside(format!("{density:.3} of the blocks are stored: mostly zeros")),
            Ok(_) if p.bs < 64 || density > 0.75 => Fit::HIGH,
            Ok(_) => Fit::MEDIUM,
        }
    }

    fn space(&self, _: &BsrProblem, _: &Cuda) -> Space {
        Space::single().axis(Axis::ints("choice", 0..3))
    }

    fn needs(&self, p: &BsrProblem, _: &Config) -> Needs {
        Needs { workspace: (WORKSPACE << 20) + scratch(p), ..Needs::default() }
    }

    fn build(&self, p: &BsrProblem, config: &Config, cuda: &Cuda) -> Result<Box<dyn Kernel<Bsr, Cuda>>, Rejection> {
        let refused = |reason: String| Rejection::DoesNotBuild { reason };
        let choice = axis(config, "choice")?;
        let made = Matmul::choose(&product(p), choice as usize, cuda).map_err(|e| refused(e.to_string()))?;
        let matmul = made.ok_or_else(|| refused(format!("the heuristic has no proposal {choice}")))?;
        let (source, blocks) = source(p);
        let function = cuda.build(&source)?;
        let over = || Rejection::OverLimits { reason: "the grid is too large for a launch".into() };
        let blocks = u32::try_from(blocks).ok().filter(|b| *b < 1 << 31).ok_or_else(over)?;
        let shape = LaunchShape { grid: [blocks, 1, 1], threads: 256, ..LaunchShape::default() };
        let full = cuda.alloc(p.dtype, (p.m * p.k) as usize).map_err(|e| e.rejection())?;
        Ok(Box::new(Filled { problem: *p, function, shape, full, matmul }))
    }

    fn is_library(&self) -> bool {
        true
    }
}

/// The kernel that fills in zeros, and its blocks.
fn source(p: &BsrProblem) -> (Source, u64) {
    let columns = p.k / p.bs;
    let wide = 1024 / p.bs;
    let defines = [("BS", p.bs), ("SIZE", p.dtype.bytes() as u64), ("WIDE", wide)];
    let defines = defines.map(|(n, v)| (n, v as i64)).to_vec();
    let source = Source { entry: "densify", text: include_str!("densify.cu"), headers: &[HOPPER], defines };
    (source, p.m / p.bs * columns.div_ceil(wide))
}

/// The dense product as the library is asked for it: Cᵀ = Bᵀ·Aᵀ column-major is the same memory.
fn product(p: &BsrProblem) -> MatmulSpec {
    let matrix =
        |rows: u64, columns: u64, turned| MatrixSpec { rows, columns, pitch: rows, stride: rows * columns, turned };
    let col = p.b == Layout::Col;
    MatmulSpec {
        dtype: p.dtype,
        tf32: false,
        a: if col { matrix(p.k, p.n, true) } else { matrix(p.n, p.k, false) },
        b: matrix(p.k, p.m, false),
        d: matrix(p.n, p.m, false),
        batch: 1,
        align: 16,
        workspace: WORKSPACE << 20,
    }
}

struct Filled {
    problem: BsrProblem,
    function: Function,
    shape: LaunchShape,
    full: Buffer,
    matmul: Matmul,
}

impl Kernel<Bsr, Cuda> for Filled {
    fn launch(&self, args: BsrArgs<'_, Cuda>, queue: &Stream) -> Result<(), Rejection> {
        let [row_ptr, col_idx, values, b, c] = addresses(&self.problem, &args)?;
        let full = self.full.address();
        let columns = i32::try_from(self.problem.columns()).unwrap_or(i32::MAX);
        let [v, f, r, i] = [&values, &full, &row_ptr, &col_idx].map(|a| (&raw const *a).cast::<c_void>());
        let list = [v, f, r, i, (&raw const columns).cast()];
        // SAFETY: four addresses and a number, as the entry declares them; the buffers were checked to hold what the problem spans, the
        // scratch holds m·k elements, and the caller vouches for the indices.
        unsafe { self.function.launch(&self.shape, &list, queue) }.map_err(|e| e.rejection())?;
        // SAFETY: as above; the product runs after the scratch was filled, on the same stream.
        unsafe { self.matmul.launch(b, full, c, queue) }.map_err(|e| e.rejection())
    }

    fn workspace(&self) -> u64 {
        self.matmul.workspace() + scratch(&self.problem)
    }
}

/// What is compiled, for tests.
#[cfg(test)]
pub(super) fn text(p: &BsrProblem) -> Source {
    source(p).0
}
