//! Fill in the zeros and call the library: A is written out dense (`densify.cu`), then cuBLASLt multiplies.
//!
//! Idea: a dense product has no indices; above some density its better rate outweighs the work on zeros. Wins: small
//! blocks from about a quarter full, and what no other kernel but the reference can do. Limits: m·k elements of scratch
//! for each stream; where the library is found.

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use warplap_core::arg::Arg;
use warplap_core::candidate::SourceHash;
use warplap_core::op::Op;
use warplap_core::rejection::Rejection;
use warplap_core::space::{Axis, Config, Space};
use warplap_core::variant::{Fit, Kernel, Needs, Variant};
use warplap_cuda::{
    BytesSpec, Chip, Cuda, Function, HOPPER, LaunchShape, Lt, Matmul, MatmulEpilogue, MatmulSpec, MatrixSpec, Source,
    Stream, Workspaces,
};

use super::mma::MmaTf32;
use super::plan::BsrKernelSpec;
use super::simt_f32::SimtF32;
use super::turned::Turned;
use super::wgmma::Fill;
use super::wgmma::SwapAb;
use super::wgmma::Union;
use crate::bsr::{Bsr, BsrProblem, Factor, SLOTS, addend};
use crate::cuda::own::{Aligns, addresses};
use crate::cuda::plan::axis;
use crate::gemm::Layout;

/// Fill in the zeros.
pub(super) struct Densify;

/// Below this share of blocks the zeros cost more than any rate of tensor cores can win back,
const SPARSE: f64 = 0.15;
/// and below this one more than plain lanes need for the blocks.
const EMPTY: f64 = 0.02;
/// MiB of workspace an algorithm may take.
const WORKSPACE: u64 = 32;

fn scratch(p: &BsrProblem) -> u64 {
    p.m * p.k * p.dtype.bytes() as u64
}

/// Whether another kernel than the plain reference can do a problem: then zeros need not be multiplied.
fn served(p: &BsrProblem, chip: &Chip) -> bool {
    let sparse: [&dyn BsrKernelSpec; 5] = [&Union, &SwapAb, &Fill, &SimtF32, &MmaTf32];
    sparse.iter().any(|twin| matches!(twin.fit(p, chip), Fit::Fits(_)))
}

impl Variant<Bsr, Cuda> for Densify {
    fn id(&self) -> &str {
        "densify"
    }

    fn source(&self) -> SourceHash {
        let version = Lt::get().map_or(0, Lt::version).to_string();
        source!(&version)
    }

    fn fit(&self, p: &BsrProblem, cuda: &Cuda) -> Fit {
        let density = p.density();
        if let Some(why) = no_bytes(p, cuda.chip()) {
            return Fit::aside(why);
        }
        match Lt::get() {
            Err(why) => Fit::aside(why),
            Ok(_) if scratch(p) > cuda.chip().memory / 4 => Fit::aside("its scratch is too much of this GPU's memory"),
            Ok(_) if p.bias && !has_bias(p) => Fit::aside("the library adds a bias to columns of C alone, unscaled"),
            Ok(_) if p.m.max(p.n).max(p.k) > i32::MAX as u64 => Fit::aside("sizes must fit 31 bits"),
            // Still an anchor of the race, and better than plain lanes unless nearly empty.
            Ok(_) if density < SPARSE && served(p, cuda.chip()) => {
                if density < EMPTY {
                    Fit::LOW
                } else {
                    Fit::MEDIUM
                }
            }
            Ok(_) if p.bs < 64 || density > 0.75 => Fit::HIGH,
            Ok(_) => Fit::MEDIUM,
        }
    }

    fn space(&self, _: &BsrProblem, _: &Cuda) -> Space {
        Space::single().axis(Axis::ints("choice", 0..3))
    }

    fn needs(&self, p: &BsrProblem, _: &Config) -> Needs {
        Needs { workspace: (WORKSPACE << 20) + scratch(p) + Turned::workspace(p), ..Needs::default() }
    }

    fn compile(&self, p: &BsrProblem, _: &Config, cuda: &Cuda) -> Result<(), Rejection> {
        cuda.compile(&source(p).0)?;
        Turned::compile(p, cuda)
    }

    fn build(&self, p: &BsrProblem, config: &Config, cuda: &Cuda) -> Result<Box<dyn Kernel<Cuda>>, Rejection> {
        let refused = |reason: String| Rejection::DoesNotBuild { reason };
        let choice = axis(config, "choice")?;
        let made = Matmul::choose(&product(p), choice as usize, cuda).map_err(|e| refused(e.to_string()))?;
        let matmul = made.ok_or_else(|| refused(format!("the heuristic has no proposal {choice}")))?;
        let (source, blocks) = source(p);
        let function = cuda.build(&source)?;
        let over = || Rejection::OverLimits { reason: "the grid is too large for a launch".into() };
        let blocks = u32::try_from(blocks).ok().filter(|b| *b < 1 << 31).ok_or_else(over)?;
        let shape = LaunchShape { grid: [blocks, 1, 1], threads: 256, ..LaunchShape::default() };
        let (aligns, turned) = (Aligns::of(&Bsr::signature(p))?, Turned::new(p, cuda)?);
        let (full, queueing) = (Workspaces::default(), Mutex::default());
        Ok(Box::new(Filled { problem: *p, aligns, function, shape, full, queueing, matmul, turned }))
    }

    fn is_library(&self) -> bool {
        true
    }
}

/// The kernel that fills in zeros, and its blocks.
fn source(p: &BsrProblem) -> (Source, u64) {
    let columns = p.k / p.bc;
    let wide = 1024 / p.bc;
    let defines = [("BS", p.bs), ("BC", p.bc), ("SIZE", p.dtype.bytes() as u64), ("WIDE", wide)];
    let defines = defines.map(|(n, v)| (n, v as i64)).to_vec();
    let source = Source { entry: "densify", text: include_str!("densify.cu"), headers: &[HOPPER], defines };
    (source, p.m / p.bs * columns.div_ceil(wide))
}

/// Why a product of f8e4m3 is nothing for the library, if so.
fn no_bytes(p: &BsrProblem, chip: &Chip) -> Option<&'static str> {
    let lines = if p.c == Layout::Row { p.n } else { p.m };
    if !p.is_bytes() {
        None
    } else if chip.capability < (8, 9) {
        Some("f8e4m3 needs sm_89 or newer")
    } else if !p.bc.is_multiple_of(16) {
        Some("rows of blocks must be whole runs of 16 bytes")
    } else if !lines.is_multiple_of(16) || !p.k.is_multiple_of(16) {
        Some("k and lines of C must be multiples of 16")
    } else {
        None
    }
}

/// Whether the library can add the bias: it knows one that is added to every column, and no factors beside it.
fn has_bias(p: &BsrProblem) -> bool {
    p.bias && !p.is_bytes() && p.c == Layout::Col && (p.alpha, p.beta) == (Factor::ONE, Factor::ONE)
}

/// The dense product as the library is asked for it. It knows column-major matrices: a row-major C is Cᵀ = Bᵀ·Aᵀ in the
/// same memory, a column-major one A·B with both turned as they need it.
fn product(p: &BsrProblem) -> MatmulSpec {
    let matrix =
        |rows: u64, columns: u64, turned| MatrixSpec { rows, columns, pitch: rows, stride: rows * columns, turned };
    let col = p.b == Layout::Col;
    let (a, b, d) = match p.c {
        Layout::Row => {
            let left = if col { matrix(p.k, p.n, true) } else { matrix(p.n, p.k, false) };
            (left, matrix(p.k, p.m, false), matrix(p.n, p.m, false))
        }
        Layout::Col => {
            let right = if col { matrix(p.k, p.n, false) } else { matrix(p.n, p.k, true) };
            (matrix(p.k, p.m, true), right, matrix(p.m, p.n, false))
        }
    };
    let (workspace, epilogue) = (WORKSPACE << 20, MatmulEpilogue { bias: p.bias, ..MatmulEpilogue::default() });
    // The library is asked for the same sums; alpha is what the factors of both matrices come to.
    let bytes = p.is_bytes().then_some(BytesSpec { out: p.out(), fast: false, scales: None });
    MatmulSpec { dtype: p.dtype, tf32: p.tf32, a, b, d, batch: 1, align: 16, workspace, epilogue, bytes }
}

struct Filled {
    problem: BsrProblem,
    aligns: Aligns<SLOTS>,
    function: Function,
    shape: LaunchShape,
    full: Workspaces,
    // Held until both launches are queued, so that no other thread's come between them.
    queueing: Mutex<()>,
    matmul: Matmul,
    turned: Turned,
}

impl Kernel<Cuda> for Filled {
    fn launch(&self, args: &mut [Arg<'_, Cuda>], queue: &Stream) -> Result<(), Rejection> {
        let slots = addresses(args, &self.aligns)?;
        let [row_ptr, col_idx, _, b, c, ..] = slots;
        let p = &self.problem;
        let _one = self.queueing.lock().unwrap_or_else(PoisonError::into_inner);
        let all = (p.m * p.k) as usize;
        let full = self.full.address(queue, all, || queue.alloc(p.dtype, all)).map_err(|e| e.rejection())?;
        let columns = i32::try_from(p.columns()).unwrap_or(i32::MAX);
        self.turned.with(&slots, queue, |values| {
            let [v, f, r, i] = [&values, &full, &row_ptr, &col_idx].map(|a| (&raw const *a).cast::<c_void>());
            let list = [v, f, r, i, (&raw const columns).cast()];
            // SAFETY: four addresses and a number, as the entry declares them; the catalog hands out kernels that
            // refuse other arguments than the signature's, the scratch holds m·k elements, and the caller vouches for
            // the indices.
            unsafe { self.function.launch(&self.shape, &list, queue) }.map_err(|e| e.rejection())
        })?;
        // The library reads no addend where beta is 0, but takes none that is nowhere.
        let add = if p.adds() { slots[addend(p)] } else { c };
        let (first, second) = if p.c == Layout::Row { (b, full) } else { (full, b) };
        if p.bias {
            // SAFETY: as above; the bias holds an element for each row of D.
            let launched = unsafe { self.matmul.launch_biased([first, second, c, c], add, 0.0, queue) };
            return launched.map_err(|e| e.rejection());
        }
        let factors = (p.alpha.get(), p.beta.get());
        // SAFETY: as above; the product runs after the scratch was filled, on the same stream.
        unsafe { self.matmul.launch_scaled([first, second, add, c], factors, queue) }.map_err(|e| e.rejection())
    }

    fn workspace(&self) -> u64 {
        self.matmul.workspace() + scratch(&self.problem) + Turned::workspace(&self.problem)
    }
}

/// What is compiled, for tests.
#[cfg(test)]
pub(super) fn text(p: &BsrProblem) -> Source {
    source(p).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_filled_in_where_no_sparse_kernel_can_go() {
        let chip = Chip::h200();
        for (text, wanted) in [
            ("bsr:m=4096,k=4096,n=4096,bs=64,density=0.05,dtype=f16", true),
            ("bsr:m=4096,k=4096,n=4096,bs=16,density=0.05,dtype=f32", true),
            ("bsr:m=4800,k=4800,n=4096,bs=24,density=0.05,dtype=f16", false),
            ("bsr:m=4096,k=4096,n=4097,bs=64,density=0.05,dtype=bf16", false),
            ("bsr:m=4096,k=4096,n=4096,bs=64,density=0.05,dtype=f32,b=col", false),
            ("bsr:m=4096,k=4096,n=4096,bs=128,density=0.05,dtype=f8e4m3", true),
            ("bsr:m=4096,k=4096,n=4096,bs=32,density=0.05,dtype=f8e4m3", false),
        ] {
            assert_eq!(served(&Bsr::parse(text).unwrap(), &chip), wanted, "{text}");
        }
    }

    #[test]
    fn the_library_is_asked_for_the_product_of_the_filled_matrix() {
        let p = Bsr::parse("bsr:m=48,k=32,n=7,bs=16,density=0.5,dtype=f32").unwrap();
        let s = product(&p);
        assert_eq!((s.a.rows, s.a.columns, s.a.turned), (7, 32, false));
        assert_eq!((s.b.rows, s.b.columns, s.d.rows, s.d.columns), (32, 48, 7, 48));
        let s = product(&BsrProblem { b: Layout::Col, ..p });
        assert_eq!((s.a.rows, s.a.columns, s.a.turned), (32, 7, true));
        let s = product(&BsrProblem { c: Layout::Col, ..p });
        assert_eq!((s.a.rows, s.a.columns, s.a.turned), (32, 48, true));
        assert_eq!((s.b.rows, s.b.columns, s.b.turned, s.d.rows, s.d.columns), (7, 32, true, 48, 7));
        assert_eq!(s.bytes, None);
    }

    #[test]
    fn bytes_are_asked_for_along_k_with_sums_added_up_in_time() {
        let chip = Chip::h200();
        for (c, left, right) in [("row", (32, 16), (32, 48)), ("col", (32, 48), (32, 16))] {
            let text = format!("bsr:m=48,k=32,n=16,bs=16,density=0.5,dtype=f8e4m3,c={c}");
            let p = Bsr::parse(&text).unwrap();
            let s = product(&p);
            assert_eq!((s.a.rows, s.a.columns, s.a.turned), (left.0, left.1, true), "{c}");
            assert_eq!((s.b.rows, s.b.columns, s.b.turned), (right.0, right.1, false), "{c}");
            assert_eq!(s.bytes, Some(BytesSpec { out: p.out(), fast: false, scales: None }));
            assert_eq!(no_bytes(&p, &chip), None);
            assert!(no_bytes(&p, &Chip { capability: (8, 0), ..chip.clone() }).unwrap().contains("sm_89"));
            assert!(no_bytes(&BsrProblem { bc: 8, ..p }, &chip).unwrap().contains("16 bytes"));
        }
        let ragged = Bsr::parse("bsr:m=48,k=32,n=17,bs=16,density=0.5,dtype=f8e4m3").unwrap();
        assert!(no_bytes(&ragged, &chip).unwrap().contains("multiples of 16"));
    }
}
