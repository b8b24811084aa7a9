//! cuBLASLt: NVIDIA's dense products, found at run time. What comes in is three matrix layouts; what goes out is one
//! product with all its descriptors made and the algorithm picked, ready to be queued.

use std::ffi::c_void;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use libloading::Library;
use warplap_core::dtype::DType;

use crate::device::cuda::Cuda;
use crate::driver::{Context, Stream};
use crate::error::CudaError;
use crate::libraries::finder::Wanted;
use crate::libraries::matmul_spec::MatmulSpec;
use crate::memory::Buffer;
use crate::workspaces::Workspaces;

const CUBLASLT: Wanted = Wanted {
    stem: "libcublasLt.so",
    variable: "WARPLAP_CUBLASLT",
    folder: "cublas",
    package: "nvidia-cublas",
    majors: &["13", "12"],
};

type Opaque = *mut c_void;

/// Numbers of `cublasLtMatmulDescAttributes_t`.
const EPILOGUE: i32 = 7;
const BIAS_POINTER: i32 = 8;
/// Of A; that of B follows.
const SCALE_POINTER: i32 = 17;
const FAST_ACCUM: i32 = 25;
/// Of A; that of B follows.
const SCALE_MODE: i32 = 31;

/// An algorithm as the library describes it: copied, never looked into.
type Algo = [u64; 8];

/// One entry of the heuristic's answer, as in cublasLt.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Proposal {
    algo: Algo,
    workspace: usize,
    state: i32,
    waves: f32,
    reserved: [i32; 4],
}

macro_rules! table {
    ($($name:ident = $symbol:literal ($($ty:ty),*);)*) => {
        /// The library's functions, loaded once per process.
        pub struct Lt {
            _library: Library,
            version: usize,
            $($name: unsafe extern "C" fn($($ty),*) -> i32,)*
        }

        impl Lt {
            fn open(path: &Path) -> Result<Self, libloading::Error> {
                // SAFETY: NVIDIA's library, whose initialisers ask nothing of their loader; the signatures are those of
                // cublasLt.h.
                unsafe {
                    let library = Library::new(path)?;
                    let version: unsafe extern "C" fn() -> usize = *library.get(b"cublasLtGetVersion\0")?;
                    Ok(Lt {
                        version: version(),
                        $($name: *library.get(concat!($symbol, "\0").as_bytes())?,)*
                        _library: library,
                    })
                }
            }
        }
    };
}

table! {
    create = "cublasLtCreate" (*mut Opaque);
    destroy = "cublasLtDestroy" (Opaque);
    desc_create = "cublasLtMatmulDescCreate" (*mut Opaque, i32, i32);
    desc_destroy = "cublasLtMatmulDescDestroy" (Opaque);
    desc_set = "cublasLtMatmulDescSetAttribute" (Opaque, i32, *const c_void, usize);
    layout_create = "cublasLtMatrixLayoutCreate" (*mut Opaque, i32, u64, u64, i64);
    layout_destroy = "cublasLtMatrixLayoutDestroy" (Opaque);
    layout_set = "cublasLtMatrixLayoutSetAttribute" (Opaque, i32, *const c_void, usize);
    preference_create = "cublasLtMatmulPreferenceCreate" (*mut Opaque);
    preference_destroy = "cublasLtMatmulPreferenceDestroy" (Opaque);
    preference_set = "cublasLtMatmulPreferenceSetAttribute" (Opaque, i32, *const c_void, usize);
    heuristic = "cublasLtMatmulAlgoGetHeuristic" (Opaque, Opaque, Opaque, Opaque, Opaque, Opaque, Opaque, i32, *mut Proposal, *mut i32);
    matmul = "cublasLtMatmul" (Opaque, Opaque, *const c_void, *const c_void, Opaque, *const c_void, Opaque, *const c_void, *const c_void, Opaque, *mut c_void, Opaque, *const Algo, *mut c_void, usize, usize);
}

impl Lt {
    /// The process's library: `WARPLAP_CUBLASLT` (a file or folder), the active Python environment, the toolkit, the
    /// loader.
    pub fn get() -> Result<&'static Lt, CudaError> {
        static LT: OnceLock<Result<Lt, CudaError>> = OnceLock::new();
        let result = || CUBLASLT.first(Self::open).map_err(|said| CudaError::NoLibrary(format!("cuBLASLt: {said}")));
        LT.get_or_init(result).as_ref().map_err(Clone::clone)
    }

    /// Its version as one number, as its header writes it.
    pub fn version(&self) -> usize {
        self.version
    }
}

/// An answer of the library as a Result.
fn checked(status: i32, call: &'static str) -> Result<(), CudaError> {
    let said = match status {
        0 => return Ok(()),
        1 => " (not initialised)",
        3 => " (out of memory)",
        7 => " (invalid value)",
        8 => " (not for this architecture)",
        13 => " (execution failed)",
        14 => " (internal error)",
        15 => " (not supported)",
        _ => "",
    };
    Err(CudaError::Library { status, call, said })
}

/// The library's handle in one context, and what its heuristic said: candidates of one problem ask the same again.
pub(crate) struct LtHandles {
    lt: &'static Lt,
    context: Arc<Context>,
    handle: Opaque,
    said: Mutex<Vec<(MatmulSpec, usize, Vec<Proposal>)>>,
}

/// Answers of the heuristic that are kept.
const SAID: usize = 64;

// SAFETY: the library documents its handle as usable from many threads.
unsafe impl Send for LtHandles {}
// SAFETY: as above.
unsafe impl Sync for LtHandles {}

impl LtHandles {
    pub(crate) fn open(context: &Arc<Context>) -> Result<Self, CudaError> {
        let lt = Lt::get()?;
        // Makes the context current: the handle belongs to it.
        context.api()?;
        let mut handle: Opaque = std::ptr::null_mut();
        // SAFETY: the pointer is to a local; what is made is destroyed in `drop`.
        unsafe { checked((lt.create)(&mut handle), "cublasLtCreate") }?;
        Ok(LtHandles { lt, context: context.clone(), handle, said: Mutex::default() })
    }

    fn said(&self, spec: &MatmulSpec, most: usize) -> Option<Vec<Proposal>> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.iter().find(|(asked, count, _)| asked == spec && *count == most).map(|(.., answer)| answer.clone())
    }

    fn keep(&self, spec: &MatmulSpec, most: usize, answer: &[Proposal]) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() == SAID {
            said.remove(0);
        }
        said.push((*spec, most, answer.to_vec()));
    }
}

impl Drop for LtHandles {
    fn drop(&mut self) {
        let _ = self.context.api();
        // SAFETY: made in `open`; every product holds the desk, so none is left.
        unsafe { (self.lt.destroy)(self.handle) };
    }
}

/// A product with its descriptors and the algorithm that was picked.
pub struct Matmul {
    lt: &'static Lt,
    context: Arc<Context>,
    handles: Arc<LtHandles>,
    desc: Opaque,
    layouts: [Opaque; 3],
    // The address of the bias that the descriptor names: it belongs to the descriptor, not to a launch.
    bias: Mutex<u64>,
    // The same of the factors of A and B.
    scales: Mutex<[u64; 2]>,
    // Whether alpha and beta are whole numbers.
    whole: bool,
    algo: Algo,
    workspace: usize,
    spaces: Workspaces,
}

// SAFETY: the descriptors are only read after `new` (the address of a bias is written under its lock, and read under
// it), and the library documents its calls as thread-safe.
unsafe impl Send for Matmul {}
// SAFETY: as above.
unsafe impl Sync for Matmul {}

impl Matmul {
    /// The heuristic's `choice`-th proposal; `None` where it has fewer.
    pub fn choose(spec: &MatmulSpec, choice: usize, cuda: &Cuda) -> Result<Option<Matmul>, CudaError> {
        let mut made = Matmul::new(spec, cuda)?;
        let result = made.ask(spec, choice + 1)?;
        let Some(proposal) = result.get(choice) else { return Ok(None) };
        (made.algo, made.workspace) = (proposal.algo, proposal.workspace);
        Ok(Some(made))
    }

    fn new(spec: &MatmulSpec, cuda: &Cuda) -> Result<Self, CudaError> {
        let handles = cuda.handles()?;
        let (lt, context) = (handles.lt, cuda.context().clone());
        context.api()?;
        let null = std::ptr::null_mut();
        let mut made = Matmul {
            lt,
            context,
            handles,
            desc: null,
            layouts: [null; 3],
            bias: Mutex::default(),
            scales: Mutex::default(),
            whole: spec.dtype == DType::I8,
            algo: Algo::default(),
            workspace: 0,
            spaces: Workspaces::default(),
        };
        // The numbers are those of cudaDataType, cublasComputeType_t and cublasLt.h's attributes.
        let code = |dtype| match (dtype, spec.bytes) {
            (DType::F32, _) => Ok(0),
            (DType::F16, _) => Ok(2),
            (DType::Bf16, _) => Ok(14),
            (DType::I8, Some(_)) => Ok(3),
            (DType::I32, Some(_)) => Ok(10),
            (DType::F8E4m3, Some(_)) => Ok(28),
            (other, _) => Err(CudaError::NoLibrary(format!("product of {other} in cuBLASLt"))),
        };
        let (dtype, out) = (code(spec.dtype)?, code(spec.bytes.map_or(spec.dtype, |bytes| bytes.out))?);
        let (compute, scale) = match (made.whole, spec.tf32) {
            (true, _) => (72, 10),
            (false, true) => (77, 0),
            (false, false) => (68, 0),
        };
        // SAFETY: all pointers are to fields or locals; what is made here is destroyed in `drop`.
        unsafe {
            checked((lt.desc_create)(&mut made.desc, compute, scale), "cublasLtMatmulDescCreate")?;
            let [turned_a, turned_b] = [spec.a, spec.b].map(|matrix| i32::from(matrix.turned));
            for (attribute, value) in [(3, turned_a), (4, turned_b), (EPILOGUE, spec.epilogue.code())] {
                let value = (&raw const value).cast::<c_void>();
                checked((lt.desc_set)(made.desc, attribute, value, 4), "cublasLtMatmulDescSetAttribute")?;
            }
            if spec.epilogue.bias {
                // No bias yet, but the heuristic may look at how its address is aligned.
                made.name_bias(&mut 0, spec.align.min(256))?;
            }
            if let Some(bytes) = spec.bytes.filter(|_| !made.whole) {
                made.set(FAST_ACCUM, &u8::from(bytes.fast))?;
                for (side, mode) in bytes.scales.iter().flatten().enumerate() {
                    made.set(SCALE_MODE + side as i32, &(*mode as i32))?;
                    // No factors yet, but the heuristic wants to be told of some.
                    made.set(SCALE_POINTER + side as i32, &256u64)?;
                }
            }
            for ((layout, m), dtype) in made.layouts.iter_mut().zip([spec.a, spec.b, spec.d]).zip([dtype, dtype, out]) {
                let pitch = m.pitch as i64;
                checked((lt.layout_create)(layout, dtype, m.rows, m.columns, pitch), "cublasLtMatrixLayoutCreate")?;
                if spec.batch > 1 {
                    let (count, stride) = (spec.batch as i32, m.stride as i64);
                    let (count, stride) = ((&raw const count).cast::<c_void>(), (&raw const stride).cast::<c_void>());
                    checked((lt.layout_set)(*layout, 5, count, 4), "cublasLtMatrixLayoutSetAttribute")?;
                    checked((lt.layout_set)(*layout, 6, stride, 8), "cublasLtMatrixLayoutSetAttribute")?;
                }
            }
        }
        Ok(made)
    }

    fn ask(&self, spec: &MatmulSpec, most: usize) -> Result<Vec<Proposal>, CudaError> {
        if let Some(answer) = self.handles.said(spec, most) {
            return Ok(answer);
        }
        let lt = self.lt;
        let mut preference: Opaque = std::ptr::null_mut();
        let mut result = vec![Proposal::default(); most];
        let mut count = 0;
        let [a, b, d] = self.layouts;
        // Sums stay in f32 between parts of K too: 1 and 2 are the reductions in place and in the compute type, 4 (in
        // the output's type) is left out.
        let (bytes, reductions, align) = (spec.workspace, 3u32, spec.align.min(256) as u32);
        // SAFETY: pointers are to locals that outlive the calls; `found` holds as many entries as is said.
        let answer = unsafe {
            checked((lt.preference_create)(&mut preference), "cublasLtMatmulPreferenceCreate")?;
            let set = |attribute, value: *const c_void, len| {
                checked((lt.preference_set)(preference, attribute, value, len), "cublasLtMatmulPreferenceSetAttribute")
            };
            let settings = || {
                set(1, (&raw const bytes).cast(), 8)?;
                set(3, (&raw const reductions).cast(), 4)?;
                (5..=8).try_for_each(|side| set(side, (&raw const align).cast(), 4))
            };
            let answer = settings().and_then(|()| {
                let (to, wanted) = (result.as_mut_ptr(), most as i32);
                let status =
                    (lt.heuristic)(self.handles.handle, self.desc, a, b, d, d, preference, wanted, to, &mut count);
                // 15, not supported, is its way to say that it knows no algorithm.
                if status == 15 { Ok(()) } else { checked(status, "cublasLtMatmulAlgoGetHeuristic") }
            });
            (lt.preference_destroy)(preference);
            answer
        };
        answer?;
        result.truncate(count.max(0) as usize);
        result.retain(|p| p.state == 0);
        self.handles.keep(spec, most, &result);
        Ok(result)
    }

    /// Bytes of workspace one launch takes.
    pub fn workspace(&self) -> u64 {
        self.workspace as u64
    }

    /// Its algorithm's place among the first `most` the heuristic proposes for another spec.
    pub fn place(&self, spec: &MatmulSpec, most: usize) -> Result<Option<usize>, CudaError> {
        let same = |p: &Proposal| p.algo == self.algo && p.workspace == self.workspace;
        Ok(self.ask(spec, most)?.iter().position(same))
    }

    /// Queues the product of the matrices at these addresses.
    ///
    /// # Safety
    /// The addresses are of device memory that holds what the layouts span until the product has ended, aligned as the
    /// spec says. The spec has no bias.
    pub unsafe fn launch(&self, a: u64, b: u64, d: u64, stream: &Stream) -> Result<(), CudaError> {
        // SAFETY: the caller's word; nothing is read of what beta would multiply.
        unsafe { self.launch_scaled([a, b, d, d], (1.0, 0.0), stream) }
    }

    /// Queues the product with a bias at one more address.
    ///
    /// # Safety
    /// As for `launch_scaled`; the bias holds an element for each row of D.
    pub unsafe fn launch_biased(&self, all: [u64; 4], bias: u64, beta: f32, stream: &Stream) -> Result<(), CudaError> {
        // Held until the launch is queued: it then has the address.
        let mut named = self.bias.lock().unwrap_or_else(PoisonError::into_inner);
        if *named != bias {
            self.name_bias(&mut named, bias)?;
        }
        // SAFETY: the caller's word.
        unsafe { self.launch_scaled(all, (1.0, beta), stream) }
    }

    /// Writes the address of a bias into the descriptor; the caller holds the lock, or is alone.
    fn name_bias(&self, named: &mut u64, bias: u64) -> Result<(), CudaError> {
        self.set(BIAS_POINTER, &bias)?;
        *named = bias;
        Ok(())
    }

    /// Sets an attribute of the descriptor; the caller holds the lock that guards it, or is alone.
    fn set<T: Copy>(&self, attribute: i32, value: &T) -> Result<(), CudaError> {
        let at = (&raw const *value).cast::<c_void>();
        // SAFETY: the value is copied by the library; nobody else reads the descriptor meanwhile.
        let status = unsafe { (self.lt.desc_set)(self.desc, attribute, at, size_of::<T>()) };
        checked(status, "cublasLtMatmulDescSetAttribute")
    }

    /// Queues the product of 8-bit matrices whose factors lie at two more addresses.
    ///
    /// # Safety
    /// As for `launch`; the factors are what the spec says of A and of B.
    pub unsafe fn launch_factored(
        &self,
        [a, b, d]: [u64; 3],
        factors: [u64; 2],
        stream: &Stream,
    ) -> Result<(), CudaError> {
        // Held until the launch is queued: it then has the addresses.
        let mut named = self.scales.lock().unwrap_or_else(PoisonError::into_inner);
        if *named != factors {
            *named = [0; 2];
            self.set(SCALE_POINTER, &factors[0])?;
            self.set(SCALE_POINTER + 1, &factors[1])?;
            *named = factors;
        }
        // SAFETY: the caller's word; nothing is read of what beta would multiply.
        unsafe { self.launch_scaled([a, b, d, d], (1.0, 0.0), stream) }
    }

    /// Queues D = alpha·op(A)·op(B) + beta·C for the matrices A, B, C and D at these addresses; C, laid out as D, may
    /// be D.
    ///
    /// # Safety
    /// As for `launch`; C is not read where beta is 0.
    pub unsafe fn launch_scaled(
        &self,
        [a, b, c, d]: [u64; 4],
        (alpha, beta): (f32, f32),
        stream: &Stream,
    ) -> Result<(), CudaError> {
        self.context.api()?;
        let space = if self.workspace == 0 { 0 } else { self.space(stream)? };
        let [layout_a, layout_b, layout_d] = self.layouts;
        let (c, d) = (c as *const c_void, d as *mut c_void);
        // Of whole numbers the library reads whole ones.
        let [alpha, beta] = [alpha, beta].map(|x| if self.whole { x as i32 as u32 } else { x.to_bits() });
        // SAFETY: the caller's word for the matrices; descriptors live as long as this object, and the workspace is
        // this stream's own.
        let status = unsafe {
            (self.lt.matmul)(
                self.handles.handle,
                self.desc,
                (&raw const alpha).cast(),
                a as *const c_void,
                layout_a,
                b as *const c_void,
                layout_b,
                (&raw const beta).cast(),
                c,
                layout_d,
                d,
                layout_d,
                &self.algo,
                space as *mut c_void,
                self.workspace,
                stream.handle(),
            )
        };
        checked(status, "cublasLtMatmul")
    }

    /// The workspace of a stream, made when it is first seen.
    fn space(&self, stream: &Stream) -> Result<u64, CudaError> {
        let words = self.workspace.div_ceil(4);
        self.spaces.address(stream, words, || Buffer::new(&self.context, DType::F32, words))
    }
}

impl Drop for Matmul {
    fn drop(&mut self) {
        let _ = self.context.api();
        // SAFETY: each was made in `new` or is null, and nobody uses it any more.
        unsafe {
            for layout in self.layouts.into_iter().filter(|l| !l.is_null()) {
                (self.lt.layout_destroy)(layout);
            }
            if !self.desc.is_null() {
                (self.lt.desc_destroy)(self.desc);
            }
        }
    }
}

impl std::fmt::Debug for Matmul {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Matmul").field("workspace", &self.workspace).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Lt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lt").field("version", &self.version).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_the_heuristic_is_as_large_as_the_header_says() {
        assert_eq!(std::mem::size_of::<Proposal>(), 96);
    }

    #[test]
    fn a_status_is_an_error_with_its_meaning() {
        assert_eq!(checked(0, "x"), Ok(()));
        let said = checked(15, "cublasLtMatmul").unwrap_err().to_string();
        assert_eq!(said, "cublasLtMatmul gave status 15 (not supported)");
    }
}
